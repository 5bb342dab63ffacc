"""Scripts of others, alone and under `canary exec`: `python -m bench.executed --sources DIR`.

The scripts are those of `bench.pull_requests`, and four longer ones beside them. Each starts twice
alone and twice under `canary exec`, in turn, in a clone of its own. Numbers that it prints, and
files that it leaves, count if both starts alone agree on them. Durations do not count.

Exit code 1 if one of them differs under `canary exec`, or if the script started twice.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.pull_requests import HERE, Script, git, load, make
from bench.pull_requests.__main__ import FAILURES, OFFLINE_ON_ONE_CORE, printed, read
from canary.compare.rules import answers
from canary.compare.stats import load_metrics

CANARY = (sys.executable, "-m", "canary.cli", "exec", "--quiet", "--name", "bench")
ALLOWED_RATIO, ALLOWED_S = 1.15, 3.0
ROUNDS = (("alone", "exec"), ("exec", "alone"))
STARTS = "\nimport pathlib; pathlib.Path({file!r}).open('a').write('x')\n"


@dataclass(frozen=True)
class Ended:
    """One ended command: CPU seconds of its process tree, starts, numbers and hashes of files."""

    cpu: float
    starts: int
    numbers: list[str]
    files: dict[str, str]
    broken: tuple[str, ...] = ()
    """Rules that the run breaks, as its record says."""


def ended(script: Script, repository: Path, place: Path, python: str, under: bool) -> Ended:
    """Run a script in a clone. RuntimeError with its last lines if it fails."""
    clone, starts = place / "clone", place / "starts"
    git(repository, "clone", "-q", str(repository), str(clone))
    command = [python if word == "python" else word for word in script.command]
    module = command[1] == "-m"
    counted = clone / (command[2].replace(".", "/") + ".py" if module else command[1])
    text = counted.read_text(encoding="utf-8")
    counted.write_text(text + STARTS.format(file=str(starts)), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*CANARY, "-o", str(place / "runs"), "--", *command] if under else command,
        cwd=clone,
        env=os.environ | OFFLINE_ON_ONE_CORE | {"PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"ended with {done.returncode}:\n{done.stderr[-3000:]}")
    records = [load_metrics(file) for file in place.glob("runs/*/metrics.json")]
    return Ended(
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        len(starts.read_text()),
        printed(read(done.stdout, 0)),
        hashes(clone, counted),
        tuple(
            rule.id
            for record in records
            for rule, answer in answers(record)
            if answer.status == "broken"
        ),
    )


def hashes(folder: Path, counted: Path) -> dict[str, str]:
    """Return the hashes of files below a folder, without git's own and the counted script."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != counted and ".git" not in path.relative_to(folder).parts
    }


def shared(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    """Return what both have, with the same value."""
    return {name: value for name, value in one.items() if two.get(name) == value}


def numbered(run: Ended) -> dict[str, str]:
    """Return the printed numbers by their place; how many there are is one more."""
    places = {f"{place}": number for place, number in enumerate(run.numbers)}
    return places | {"count": f"{len(run.numbers)}"}


def judged(script: Script, sources: Path, python: str) -> tuple[str, bool]:
    """Return the row of a script, and whether all is equal."""
    found: dict[str, list[Ended]] = {"alone": [], "exec": []}
    with tempfile.TemporaryDirectory() as where:
        make(script, sources, Path(where) / "repository", python)
        for number, arms in enumerate(ROUNDS):
            for arm in arms:
                place = Path(where) / f"{arm}-{number}"
                place.mkdir()
                one = ended(script, Path(where) / "repository", place, python, arm == "exec")
                found[arm].append(one)
    alone, under = found["alone"], found["exec"]
    numbers = shared(*(numbered(one) for one in alone))
    files = shared(*(one.files for one in alone))
    same_numbers = min(len(shared(numbers, numbered(one))) for one in under)
    same_files = min(len(shared(files, one.files)) for one in under)
    starts = max(one.starts for one in under)
    pairs = [(one.cpu, two.cpu) for one, two in zip(under, alone, strict=True)]
    ratio = statistics.mean(ours / bare for ours, bare in pairs)
    over = statistics.mean(ours - ALLOWED_RATIO * bare for ours, bare in pairs)
    right = (same_numbers, same_files, starts) == (len(numbers), len(files), 1)
    return (
        f"| {script.name} | {statistics.mean(one.cpu for one in alone):.1f} | {ratio:.2f} "
        f"| {over:+.1f} of {ALLOWED_S:.0f} | {starts} | {same_numbers} of {len(numbers)} "
        f"| {same_files} of {len(files)} "
        f"| {', '.join(under[0].broken)} |"
    ), right


def main() -> int:
    """Print a row per script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=Path, required=True, help="see bench.pull_requests")
    parser.add_argument("--python", default=sys.executable, help="has what the scripts require")
    parser.add_argument("--only", action="append", help="a script's name; may be repeated")
    chosen = parser.parse_args()
    columns = ("script", "alone, CPU s", "exec", f"over {ALLOWED_RATIO} x alone, s", "starts")
    print(f"| {' | '.join((*columns, 'equal numbers', 'equal files', 'broken rules'))} |")
    print("|---|---|---|---|---|---|---|---|")
    wrong = 0
    for script in [*load(HERE / "unchanged"), *load()]:
        if chosen.only and script.name not in chosen.only:
            continue
        try:
            row, right = judged(script, chosen.sources, chosen.python)
        except FAILURES as error:
            row, right = f"| {script.name} | {error} |", False
        wrong += not right
        print(row, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
