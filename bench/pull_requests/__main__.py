"""`python -m bench.pull_requests check --sources DIR`: does each branch do what its YAML says?

Each branch runs without canary. A fault must change a printed number within 10 optimizer steps.
A benign change must leave every printed number and every trained weight bit-equal. Durations do not
count.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.pull_requests import HERE, Change, Kind, Script, git, load, make

DURATION = re.compile(
    r"""['"]?[\w/]*(?:time|elapsed|per_second|per_sec|ms/batch)\w*['"]?\s*[:=]?\s*"""
    r"""['"]?-?[\d.]+(?:e[+-]?\d+)?['"]?""",
    re.IGNORECASE,
)
NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|\binf\b|\bnan\b)", re.IGNORECASE)
MARK = "#optimizer-step"
FIRST_STEPS = 10
LIMIT_S = 600
OFFLINE_ON_ONE_CORE = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
FAILURES = (OSError, RuntimeError, ValueError, subprocess.SubprocessError)


@dataclass(frozen=True)
class Output:
    """What a run printed: `numbers` are pairs of the optimizer steps before it and the number."""

    numbers: list[tuple[int, str]]
    weights: list[str]
    seconds: float

    @property
    def steps(self) -> int:
        return len(self.weights)


def ran(script: Script, folder: Path, branch: str, python: str, *, counted: bool = True) -> Output:
    """Runs a branch in a copy of the repository; RuntimeError with its last lines if it fails."""
    with tempfile.TemporaryDirectory() as where:
        git(folder, "worktree", "add", "-q", "--detach", f"{where}/run", branch)
        command = [python if word == "python" else word for word in script.command]
        if counted and command[1].endswith(".py"):
            command[1:1] = [str(HERE / "counted.py")]
        started = time.monotonic()
        done = subprocess.run(
            command,
            cwd=f"{where}/run",
            env=os.environ | OFFLINE_ON_ONE_CORE,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        seconds = time.monotonic() - started
        git(folder, "worktree", "remove", "--force", f"{where}/run")
    if done.returncode:
        raise RuntimeError(
            f"{script.name} {branch} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return read(done.stdout, seconds)


def read(text: str, seconds: float) -> Output:
    numbers: list[tuple[int, str]] = []
    weights: list[str] = []
    for line in text.splitlines():
        if MARK in line:  # a script may have printed half a line before it
            line, weight = line.split(MARK)
            numbers += [(len(weights), number) for number in NUMBER.findall(DURATION.sub("", line))]
            weights.append(weight)
        else:
            numbers += [(len(weights), number) for number in NUMBER.findall(DURATION.sub("", line))]
    return Output(numbers, weights, seconds)


def printed(output: Output) -> list[str]:
    return [number for _, number in output.numbers]


def first_difference(main: Output, other: Output) -> int | None:
    """Optimizer steps before the first printed number that differs; None if all are equal."""
    for (step, one), (_, two) in zip(main.numbers, other.numbers, strict=False):
        if one != two:
            return step
    return None if len(main.numbers) == len(other.numbers) else main.steps


def wrong_line(change: Change, folder: Path) -> str | None:
    """Why the named line is not one of the lines that the branch changes."""
    diff = git(folder, "diff", "-U0", "main", change.name, "--", change.file or ".").decode()
    sign = "-" if change.deleted else "+"
    lines = [
        line[1:].strip()
        for line in diff.splitlines()
        if line.startswith(sign) and not line.startswith(sign * 3)
    ]
    count = lines.count((change.line or "").strip())
    return None if count == 1 else f"its line is {count} times among the changed ones"


def judged(change: Change, main: Output, output: Output, folder: Path) -> str | None:
    """What the change does not keep; None if it keeps its word."""
    at = first_difference(main, output)
    if change.kind is Kind.BENIGN:
        if at is not None:
            return f"a printed number differs after {at} steps"
        return None if output.weights == main.weights else "trained weights differ"
    if at is None:
        return "no printed number differs"
    if at > FIRST_STEPS:
        return f"the first printed number that differs comes after {at} steps"
    return wrong_line(change, folder)


def check(script: Script, sources: Path, python: str) -> Iterator[tuple[str, str | None, str]]:
    """Of main and of each change: its name, what is wrong with it, and what was seen."""
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "repository"
        try:
            make(script, sources, folder, python)
            main = ran(script, folder, "main", python)
            bare = ran(script, folder, "main", python, counted=False)
        except FAILURES as error:
            yield "main", str(error), "nothing"
            return
        problem = None
        if printed(main) != printed(bare):
            problem = "two runs print different numbers"
        elif main.steps != script.steps:
            problem = f"{main.steps} optimizer steps, not {script.steps}"
        yield "main", problem, f"{main.steps} steps, {main.seconds:.0f} s"
        for change in script.changes:
            try:
                output = ran(script, folder, change.name, python)
            except FAILURES as error:
                yield f"{change.name} ({change.kind})", str(error), "nothing"
                continue
            at = first_difference(main, output)
            seen = "equal" if at is None else f"differs after {at} steps"
            yield f"{change.name} ({change.kind})", judged(change, main, output, folder), seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pull_requests")
    parser.add_argument("verb", choices=["check"])
    parser.add_argument(
        "--sources",
        type=Path,
        required=True,
        help="folders owner+name with the fetched repositories",
    )
    parser.add_argument(
        "--python", default=sys.executable, help="has torch, and what the scripts require"
    )
    parser.add_argument("--only", action="append", help="a script's name; may be repeated")
    options = parser.parse_args()
    scripts = [script for script in load() if not options.only or script.name in options.only]
    wrong = 0
    for script in scripts:
        for name, problem, seen in check(script, options.sources, options.python):
            wrong += problem is not None
            print(f"{script.name} {name}: {problem or 'ok'} ({seen})", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
