"""Tries all trainers on the installed trl and its partners: `python -m bench.stacks OUT.json`.

Runs each trainer for a few steps on the embedded model in this Python environment. Checks that the
records are complete and writes the outcomes. `nox -s stacks` calls it in one environment per stack.
Exit code 1 if a trainer of the installed trl fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import yaml

from bench.stacks_complete import missing
from canary.config.trainers import TRAINERS as ROWS
from canary.record.folder import load_record

TRL_PPO = "trl_ppo"
"""A user's script with trl's PPO; `ppo` is the canary's loop."""
TRAINERS = (*sorted(ROWS, key=lambda name: ROWS[name].own_loop), TRL_PPO)
"""trl's trainers first."""
PARTNERS = ("torch", "transformers", "accelerate", "peft", "datasets", "tokenizers")
STEPS, LOOK_STEPS = 12, 4
TIMEOUT = 300
SETTINGS = {
    "max_steps": STEPS,
    "look_steps": LOOK_STEPS,
    "metrics_warmup_steps": 1,
    "batch_size": 2,
    "gradient_accumulation_steps": 2,
    "dataset_size": 72,
    "threads": 1,
    "device": "cpu",
    "timeout": TIMEOUT,
}
EXTRA: dict[str, dict[str, object]] = {
    "grpo": {"max_new_tokens": 12, "num_generations": 2},
    "rloo": {"max_new_tokens": 12, "num_generations": 2},
    "ppo": {"max_new_tokens": 12, "ppo": {"ppo_epochs": 2}},
}
PPO_SCRIPT = Path(__file__).with_name("stacks_ppo.py")
NOT_OFFERED = ("is not offered by trl", "this trl has no PPO that is a Trainer")


@dataclass(frozen=True)
class Outcome:
    """The result of one trainer: 'works', 'works with a note', 'not offered' or 'fails'."""

    outcome: str
    notes: tuple[str, ...] = ()


def command_of(kind: str, folder: Path) -> list[str]:
    """Return the command line of a short canary; trl's PPO runs in a user's script."""
    values: dict[str, object] = SETTINGS | EXTRA.get(kind, {})
    if kind == TRL_PPO:
        values = {key: values[key] for key in ("look_steps", "metrics_warmup_steps", "timeout")}
        values["threads"] = 1
    else:
        values |= {"name": kind, "training_type": kind}
    config = folder / "canary.yaml"
    config.write_text(yaml.safe_dump(values))
    canary = [sys.executable, "-m", "canary.cli"]
    if kind != TRL_PPO:
        return [*canary, "run", str(config), "-o", str(folder / "out")]
    script = [sys.executable, str(PPO_SCRIPT), str(folder / "trained"), str(STEPS)]
    return [
        *(*canary, "exec", "--name", TRL_PPO, "--config", str(config), "-o", str(folder / "out")),
        *("--", *script),
    ]


def try_trainer(kind: str, folder: Path) -> Outcome:
    """Run one trainer in `folder` and judge its record."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command_of(kind, folder),
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    )
    said = done.stdout + done.stderr
    if done.returncode and any(words in said for words in NOT_OFFERED):
        return Outcome("not offered")
    found = sorted((folder / "out").glob("*/metrics.json"))
    if done.returncode or not found:
        last = [line for line in done.stderr.strip().splitlines() if line] or ["no output"]
        return Outcome("fails", (f"exit code {done.returncode}: {last[-1]}",))
    record = load_record(found[-1])
    log = found[-1].with_name("log.txt").read_text(encoding="utf-8")
    lacking = missing(record, log, kind, STEPS, LOOK_STEPS)
    if lacking:
        return Outcome("fails", tuple(lacking))
    return Outcome("works with a note" if record.notes else "works", tuple(record.notes))


def main() -> int:
    """Try the trainers one after the other and write OUT.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("trainers", nargs="*", default=TRAINERS, help=" ".join(TRAINERS))
    parser.add_argument("--keep", type=Path, help="keep the run folders here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        root: Path = asked.keep or Path(passing)
        outcomes = {}
        for kind in asked.trainers:
            outcomes[kind] = try_trainer(kind, (root / kind).absolute())
            print(f"{kind:8} {outcomes[kind].outcome}", *outcomes[kind].notes, sep="\n         ")
    found = {
        "trl": metadata.version("trl"),
        "packages": {name: metadata.version(name).partition("+")[0] for name in PARTNERS},
        "trainers": {kind: asdict(outcome) for kind, outcome in outcomes.items()},
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(any(outcome.outcome == "fails" for outcome in outcomes.values()))


if __name__ == "__main__":
    raise SystemExit(main())
