"""The cost of one launch: `python -m bench.one_launch paired|exec|ab|noting|rules`.

What does one launch cost, and does its look leave a trace in the timed steps?

- `paired`: the built-in SFT and a plain loop of torch under `canary exec`, with a look of 12 steps
  and without, in turn. Prints the ratio of the median time per step after the 16th, wall and CPU.
- `exec`: scripts alone, under `canary exec` and under `torch.profiler`, in turn. Prints the CPU
  time of each command. Standard output and saved weights must be equal, alone and under exec.
- `ab`: `canary ab --exact` on equal code, in turn with the command alone.
- `noting`: `canary exec --exact`, in turn with a copy of the canary that notes no code. `--python`
  names the Python of the scripts.
- `rules`: `canary exec` and `canary run`, in turn with a copy of the canary that watches nothing
  for the rules.

Intervals are 95%, over pairs. Exit code 1 if outputs differ.
"""

from __future__ import annotations

import argparse
import os
import resource
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from bench.overhead import interval
from canary.config.spans import LOOK_STEPS
from canary.inputs.embedded import data_file, tiny_dir
from canary.record.jsonio import read_rows

SCRIPTS = Path(__file__).with_name("one_launch_scripts")
VIEWS = {"sft_trainer": "prompt_completion", "dpo_trl": "preference"}
"""Scripts that take the embedded model, and the view of the embedded data that each takes."""
NAMES = tuple(sorted(path.stem for path in SCRIPTS.glob("*.py")))
LOOP = "char_transformer"
UNTIMED = 16
"""First steps that count on neither side: the look and its warm-up."""
SFT: dict[str, object] = {
    "name": "sft",
    "training_type": "sft",
    "max_steps": 80,
    "dataset_size": 640,
    "device": "cpu",
}
CANARY = (sys.executable, "-m", "canary.cli")
ALLOWED_RATIO, ALLOWED_S = 1.15, 3.0
"""CPU time that exec may take: this many times the bare command's, and so many seconds."""
ALLOWED_AB = 2.3
ARMS = ("bare", "exec", "profiler")


@dataclass(frozen=True)
class Ended:
    """One ended command: seconds of its whole process tree, output, and the saved weights."""

    wall: float
    cpu: float
    out: str
    weights: Mapping[str, bytes]

    def same(self, other: Ended) -> bool:
        """Return whether both printed and saved the same."""
        return (self.out, self.weights) == (other.out, other.weights)


def ended(words: Sequence[str], folder: Path, canary: Path = Path(__file__).parents[1]) -> Ended:
    """Run a command in a new folder, with the canary of a folder. SystemExit if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        | {"PYTHONPATH": str(canary)},
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    saved = {path.name: path.read_bytes() for path in sorted(folder.glob("out/*"))}
    return Ended(wall, cpu, done.stdout, saved)


def command_of(name: str, python: str = sys.executable) -> list[str]:
    """Return the bare command of a script."""
    words = [python, str(SCRIPTS / f"{name}.py")]
    if name in VIEWS:
        words += [str(tiny_dir()), str(data_file(VIEWS[name]))]  # type: ignore[arg-type]
    return words


def executed(words: Sequence[str], *options: str) -> list[str]:
    """Return a command under `canary exec`."""
    return [*CANARY, "exec", "--name", "bench", "--quiet", "-o", "runs", *options, "--", *words]


def step_times(what: str, look: int, folder: Path) -> dict[str, float]:
    """Return the median wall and CPU seconds per step after the 16th, of one launch."""
    chosen = ("--set", f"look_steps={look}")
    if what == "sft":
        folder.mkdir(parents=True)
        (folder / "canary.yaml").write_text(yaml.safe_dump(SFT))
        words = [*CANARY, "run", "canary.yaml", "--quiet", "-o", "runs", *chosen]
    else:
        words = executed(command_of(LOOP), *chosen)
    ended(words, folder)
    (file,) = folder.glob("runs/*/steps.jsonl")
    rows = [row for row in read_rows(file) if row["step"] > UNTIMED]
    assert len(rows) > UNTIMED, f"{len(rows)} timed steps"
    assert not any(row.get("look") for row in rows)
    return {
        "wall": statistics.median(row["wall_s"] for row in rows),
        "CPU": statistics.median(row["cpu_s"] for row in rows),
    }


def paired(pairs: int, names: Sequence[str], root: Path) -> int:
    """Print the ratios of step time with a look over without."""
    print(
        "| training | time per step | with a look, over without | without, ms |\n|---|---|---|---|"
    )
    for what in names:
        found: dict[int, list[dict[str, float]]] = defaultdict(list)
        for pair in range(pairs):
            for look in (LOOK_STEPS, 0) if pair % 2 == 0 else (0, LOOK_STEPS):
                found[look].append(step_times(what, look, root / f"{what}-{pair}-{look}"))
        for figure in ("wall", "CPU"):
            plain = [one[figure] for one in found[0]]
            looked = [one[figure] for one in found[LOOK_STEPS]]
            shown = ratio(looked, plain)
            print(f"| {what} | {figure} | {shown} | {1000 * statistics.median(plain):.1f} |")
    return 0


def ratio(ours: Sequence[float], plain: Sequence[float]) -> str:
    """Return the ratio over pairs with its interval in words."""
    mean, low, high = interval([a / b for a, b in zip(ours, plain, strict=True)])
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def arm_of(arm: str, name: str) -> list[str]:
    """Return the command line of a script in one of its arms."""
    words = command_of(name)
    if arm == "exec":
        return executed(words)
    if arm == "profiler":
        return [words[0], "-m", "bench.one_launch", "--profiled", *words[1:]]
    return words


def profiled(words: Sequence[str]) -> None:
    """Run a script in this process, all of it under `torch.profiler`."""
    from torch.profiler import ProfilerActivity, profile

    sys.argv = list(words)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=False):
        runpy.run_path(words[0], run_name="__main__")


def executions(rounds: int, names: Sequence[str], root: Path) -> int:
    """Print the CPU seconds of each script in its arms. Return 1 if exec changes an output."""
    wrong = 0
    print(f"| script | bare, CPU s | exec | over {ALLOWED_RATIO} x bare | profiler | equal |")
    print("|---|---|---|---|---|---|")
    for name in names:
        found: dict[str, list[Ended]] = defaultdict(list)
        for number in range(rounds):
            turn = number % len(ARMS)
            for arm in (*ARMS[turn:], *ARMS[:turn]):
                found[arm].append(ended(arm_of(arm, name), root / f"{name}-{number}-{arm}"))
        bare, ours, theirs = ([one.cpu for one in found[arm]] for arm in ARMS)
        over = statistics.median(a - ALLOWED_RATIO * b for a, b in zip(ours, bare, strict=True))
        equal = all(one.same(found["bare"][0]) for one in (*found["bare"], *found["exec"]))
        wrong += not equal
        print(
            f"| {name} | {statistics.median(bare):.1f} | {ratio(ours, bare)} "
            f"| {over:+.1f} s of {ALLOWED_S:.0f} | {ratio(theirs, bare)} "
            f"| {'yes' if equal else 'NO'} |",
            flush=True,
        )
    return int(wrong > 0)


def ab(rounds: int, names: Sequence[str], root: Path) -> int:
    """Print the time of `canary ab --exact` on equal code, over that of the bare command."""
    print(f"| script | bare, CPU s | CPU, allowed {ALLOWED_AB} | wall |\n|---|---|---|---|")
    for name in names:
        place = root / name
        place.mkdir(parents=True)
        config = {"name": "bench", "training_type": "exec", "command": command_of(name)}
        (place / "canary.yaml").write_text(yaml.safe_dump(config))
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "equal code"]):
            subprocess.run(["git", *words], cwd=place, check=True)
        found: dict[str, list[Ended]] = defaultdict(list)
        both = {
            "bare": command_of(name),
            "ab": [*CANARY, "ab", "canary.yaml", "--exact", "--base", "HEAD"],
        }
        for number in range(rounds):
            for side in sorted(both, reverse=number % 2 == 0):
                folder = place if side == "ab" else root / f"{name}-{number}"
                output = ["-o", str(root / f"{name}-{number}-runs")] if side == "ab" else []
                found[side].append(ended([*both[side], *output], folder))
        cpu, wall = (
            [[getattr(one, figure) for one in found[side]] for side in ("ab", "bare")]
            for figure in ("cpu", "wall")
        )
        seconds = statistics.median(cpu[1])
        print(f"| {name} | {seconds:.1f} | {ratio(*cpu)} | {ratio(*wall)} |", flush=True)
    return 0


TRAINING = Path("canary") / "training"
LEFT_OUT: dict[str, dict[Path, tuple[tuple[str, str], ...]]] = {
    "notes": {
        TRAINING / "collectors" / "ran.py": (
            ('getattr(sys, "monitoring", None)', "None"),
            ("elif sys.getprofile() is None", "elif False"),
        )
    },
    "rules": {
        TRAINING / "launch.py": (("[*watchers_of(trained), asking]", "[]"),),
        TRAINING / "torch_loop" / "watch.py": (
            ("EARLY.begin()", "pass"),
            ("self._safely(LOADERS.begin)", "pass"),
        ),
    },
}
"""By what a copy of the canary leaves out: its files, and what replaces their code."""


def copy_without(what: str, place: Path) -> Path:
    """Return a copy of the canary that leaves out a part of the look."""
    own = Path(__file__).parents[1]
    for name in ("canary", "templates"):
        shutil.copytree(own / name, place / name)
    for file, edits in LEFT_OUT[what].items():
        text = (place / file).read_text()
        for code, nothing in edits:
            assert text.count(code) == 1, code
            text = text.replace(code, nothing)
        (place / file).write_text(text)
    return place


def left_out(rounds: int, names: Sequence[str], root: Path, what: str, python: str) -> int:
    """Print the CPU time of a run over that with a copy of the canary that leaves a part out."""
    own, without = Path(__file__).parents[1], copy_without(what, root / "without")
    print(f"| training | without {what}, CPU s | with {what}, over without |\n|---|---|---|")
    for name in names:
        found: dict[Path, list[float]] = defaultdict(list)
        words = [*CANARY, "run", "canary.yaml", "--quiet", "-o", "runs"]
        if name != "sft":
            exact = ("--exact",) if what == "notes" else ()
            words = executed(command_of(name, python), *exact)
        for number in range(rounds):
            for canary in (own, without) if number % 2 else (without, own):
                place = root / f"{name}-{number}-{canary.name}"
                place.mkdir()
                (place / "canary.yaml").write_text(yaml.safe_dump(SFT))
                found[canary].append(ended(words, place, canary).cpu)
        seconds = statistics.median(found[without])
        print(f"| {name} | {seconds:.1f} | {ratio(found[own], found[without])} |", flush=True)
    return 0


def main() -> int:
    """Measure what is asked."""
    if sys.argv[1:2] == ["--profiled"]:
        profiled(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("paired", "exec", "ab", "noting", "rules"))
    parser.add_argument("-n", type=int, default=10, help="pairs or rounds, at least 2")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"sft, loop; {', '.join(NAMES)}")
    parser.add_argument("--python", default=sys.executable, help="of the scripts, for noting")
    asked = parser.parse_args()
    if asked.n < 2:
        parser.error("an interval needs 2 pairs")
    measures: dict[str, tuple[Callable[[int, Sequence[str], Path], int], tuple[str, ...]]] = {
        "paired": (paired, ("sft", "loop")),
        "exec": (executions, NAMES),
        "ab": (ab, NAMES),
        "noting": (partial(left_out, what="notes", python=asked.python), NAMES),
        "rules": (partial(left_out, what="rules", python=asked.python), ("sft", *NAMES)),
    }
    measure, known = measures[asked.what]
    unknown = set(asked.only or ()) - set(known)
    if unknown:
        parser.error(f"{asked.what} has no {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        return measure(asked.n, asked.only or known, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
