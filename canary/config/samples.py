"""Sample configs: short and commented."""

from __future__ import annotations

import re
from pathlib import Path

from canary.config.trainers import TRAINERS, TrainerRow
from canary.errors import ConfigError, UsageError, did_you_mean, nearest, writing
from canary.files import replace_file

FOLDER = "configs"
"""Folder of the samples in this repository and in its docs."""
LADDER = Path(__file__).parent / "builtin" / "ladder_ppo.yaml"
STEPS = {"smoke": 100, "perf": 500}
"""Steps of a sample, by its tier of limits."""
PURPOSE = {
    "smoke": "on each pull request: about a minute",
    "perf": "for changes of speed: a few minutes",
}

SAMPLES = (
    *(f"{kind}_smoke.yaml" for kind in TRAINERS),
    *("sft_lora_smoke.yaml", "dpo_lora_smoke.yaml", "sft_perf.yaml", "dpo_perf.yaml"),
    *("hub/sft_smoke.yaml", "hub/dpo_smoke.yaml"),
    LADDER.name,
)
"""The files in `configs`. `canary init FILE` writes those of all trainers."""

KINDS = (*TRAINERS, "exec")
"""Values of `canary init --type`."""

UNNAMED = "exec_smoke"
"""The name of a command's config, until its folder gives one."""
COMMAND = f"""\
# Your training command, on each pull request.
name: {UNNAMED}
command: [python, train.py] # your command, one list item per word

max_steps: {STEPS["smoke"]} # training stops there; without this line it runs to the end
# threads: 1              # CPU threads of torch; without this line the command chooses
# timeout: 3600           # seconds for the whole run

thresholds:
  base_tier: smoke
"""

LONGEST_NAME = 56
"""Characters of a name that leave room for `-nightly`: a name has at most 64."""


def sample_yaml(training_type: str, tier: str, *, lora: bool = False, hub: bool = False) -> str:
    """Return a sample config as text.

    `hub`: pythia-70m on hh-rlhf, for SFT and DPO; GRPO needs answers, which its rows lack.

    Raises:
        UsageError: an unknown trainer, with the nearest known one.
    """
    if training_type == "exec":
        return COMMAND
    if training_type not in TRAINERS:
        hint = did_you_mean(nearest(training_type, KINDS), f"one of {', '.join(KINDS)}")
        raise UsageError(f"--type {training_type} is unknown", hint)
    row = TRAINERS[training_type]
    name = f"{training_type}_{'lora_' if lora else ''}{tier}{'_hub' if hub else ''}"
    lines = [
        f"# {training_type.upper()}{' with LoRA' if lora else ''}, {PURPOSE[tier]}.",
        f"name: {name}",
        f"training_type: {training_type}",
    ]
    lines += _hub_source(tier) if hub else _embedded_source()
    if lora:
        lines += ["use_peft: true"]
    lines += [
        "",
        f"max_steps: {STEPS[tier]}",
        "batch_size: 4",
        "gradient_accumulation_steps: 2",
        "max_length: 512" if hub else _length(row),
        *row.sample,
    ]
    if tier != "smoke" and not hub:
        lines.append("allow_repeat: true           # embedded/tasks has fewer rows than this needs")
    lines += ["", "thresholds:", f"  base_tier: {tier}"]
    return "\n".join(lines) + "\n"


def nightly_yaml(below: str, name: str) -> str:
    """Return a nightly config as text that extends the config file `below` in the same folder."""
    lines = [
        f"# The training of {below}, once a night: the long-term trend.",
        f"extends: {below}",
        f"name: {name[:LONGEST_NAME]}-nightly",
        "",
        "# max_steps: 500  # more than for a pull request, at most the steps of the full training",
        "",
        "thresholds:",
        "  base_tier: nightly",
    ]
    return "\n".join(lines) + "\n"


def shipped(path: Path) -> str | None:
    """Return the text of the sample `configs/NAME.yaml` for a folder without that file.

    None for any other path, also for an absolute one."""
    name = path.as_posix().removeprefix(f"{FOLDER}/")
    if path.as_posix() == name or name not in SAMPLES:
        return None
    if name == LADDER.name:
        return LADDER.read_text(encoding="utf-8")
    kind, *lora, tier = path.stem.split("_")
    return sample_yaml(kind, tier, lora=bool(lora), hub=name.startswith("hub/"))


def _length(row: TrainerRow) -> str:
    return "max_new_tokens: 24" if row.online else "max_length: 128"


def _embedded_source() -> list[str]:
    return [
        "model_name: embedded/tiny    # or a Hugging Face id, or a local folder",
        "dataset_name: embedded/tasks # or a Hugging Face id, or a local JSONL or parquet",
    ]


def _hub_source(tier: str) -> list[str]:
    return [
        "model_name: EleutherAI/pythia-70m",
        "dataset_name: Anthropic/hh-rlhf",
        f"dataset_size: {10 * STEPS[tier]}  # of 160,800 rows: only these are prepared",
    ]


def write_sample(path: Path, training_type: str, *, force: bool = False) -> None:
    """Write the sample config `smoke` of a trainer.

    Raises:
        ConfigError: the file exists and `force` is off.
        UsageError: an unknown trainer.
        MachineError: the file cannot be written.
    """
    folder = re.sub(r"[^A-Za-z0-9._-]+", "-", path.absolute().parent.name).strip("._-")
    text = sample_yaml(training_type, "smoke").replace(UNNAMED, folder[:LONGEST_NAME] or UNNAMED)
    if path.exists() and not force:
        raise ConfigError(f"{path} exists", "choose another name, or use --force", file=path)
    with writing(path, "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
