"""Scripts written like public ones, alone and in `canary exec`: `python -m bench.strangers`.

The scripts and the expected results (`expected.json`, written before the first run) are in
`tests/integration/exec/strange`. Each script runs bare and watched, in separate folders; both must
leave equal files. Three unchanged runs must not be red; each planted fault must be named.

`--keep` keeps the runs in a folder; the next call runs only missing ones.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[1] / "tests" / "integration" / "exec" / "strange"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SCRIPTS / "expected.json").read_text())["scripts"]
LIMIT_S = 600
REPEATS = 3
OF_TIME = re.compile(r"runtime|per_second|_time$|timestamp")
"""Keys of times, which differ between any two runs of a command."""
OUR_WORDS = {
    "data": {"data", "tokenization"},
    "data loading": {"dataloader"},
    "loss": {"objective"},
    "model": {"adapter", "objective"},
    "optimizer": {"optimizer"},
}
"""Suspect categories of docs/diagnosis.md, by the plain words of `expected.json`."""
STAGES_ALIKE = {"parameters": "model"}


@dataclass(frozen=True)
class Ran:
    """One ended command, with its working directory and the run folder that it left."""

    code: int
    out: str
    err: str
    work: str
    run: str | None


@dataclass(frozen=True)
class Compared:
    """The result of `canary compare`."""

    verdict: str
    first_line: str
    stage: str | None
    category: str | None
    text: str


@dataclass
class Outcome:
    """The figures of one script; the lists hold what was not as expected."""

    script: str
    files: int = 0
    wrong_files: list[str] = field(default_factory=list)
    wrong_ways: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    equal: Compared | None = None
    equal_wrong: list[str] = field(default_factory=list)
    faults: dict[str, Compared] = field(default_factory=dict)
    faults_wrong: dict[str, list[str]] = field(default_factory=dict)


def train(
    script: str, place: Path, fault: str = "", *, watched: bool = True, after: Path | None = None
) -> Ran:
    """Run a script in `place`, or read the ended run there.

    The run begins in a copy of the folder that the run in `after` left.
    """
    kept = place / "ran.json"
    if kept.exists():
        return Ran(**json.loads(kept.read_text()))
    shutil.rmtree(place, ignore_errors=True)
    work = place / "work"
    if after:
        shutil.copytree(after / "work", work)
    work.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPTS / f"{script}.py", work / "train.py")
    ran = launched(script, place, fault, watched=watched)
    kept.write_text(json.dumps(asdict(ran)))
    return ran


def launched(script: str, place: Path, fault: str = "", *, watched: bool = True) -> Ran:
    """Run the command in the prepared folder."""
    work, runs = place / "work", place / "runs"
    expected = EXPECTED[script]
    planted = expected["faults"].get(fault, {})
    words = [sys.executable, "train.py", *expected["arguments"], *planted.get("arguments", [])]
    if watched:
        ours = [sys.executable, "-m", "canary.cli", "exec", "--name", script, "-o", str(runs)]
        words = [*ours, "--", *words]
    done = subprocess.run(
        words,
        cwd=work,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "FAULT": fault},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    left = [*runs.glob("*/metrics.json"), *(work / "canary_output").glob("*/metrics.json")]
    run = str(left[0].parent) if left else None
    return Ran(done.returncode, done.stdout, done.stderr, str(work), run)


def tree(work: str) -> dict[str, Path]:
    """Return the files that a script left, by relative path, without the canary's."""
    root = Path(work)
    paths = {str(path.relative_to(root)): path for path in sorted(root.rglob("*"))}
    ours = ("train.py", "canary_output")
    return {
        name: path
        for name, path in paths.items()
        if not path.is_dir() and name.split("/")[0] not in ours
    }


def content(path: Path, timeless: bool = False) -> str:
    """Return a hash of a file's content; with `timeless`, without times in JSON."""
    data = path.read_bytes()
    if timeless and path.suffix == ".json":
        data = json.dumps(_timeless(json.loads(data))).encode()
    return hashlib.sha256(data).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if not OF_TIME.search(key)}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def unlike(alone: Ran, seen: Ran, again: Ran | None = None) -> list[str]:
    """Return the missing, new and different files; `again`, a second bare run, shows which vary."""
    left, right = tree(alone.work), tree(seen.work)
    third = tree(again.work) if again else {}
    wrong = [f"{name} is missing" for name in left.keys() - right.keys()]
    wrong += [f"{name} is new" for name in right.keys() - left.keys()]
    for name in left.keys() & right.keys():
        if content(left[name]) == content(right[name]):
            continue
        repeats = not again or content(left[name]) == content(third[name])
        timed = again and content(left[name], True) == content(third[name], True)
        if repeats or (timed and content(left[name], True) != content(right[name], True)):
            wrong.append(f"{name} differs")
    return sorted(wrong)


def compare(current: str, baselines: Sequence[str]) -> Compared:
    """Run `canary compare` as a user would, the newest run against the others."""
    words = [sys.executable, "-m", "canary.cli", "compare", current]
    words += [word for path in baselines for word in ("--baseline", path)]
    said, raw = (
        subprocess.run([*words, "--format", form], capture_output=True, text=True, timeout=LIMIT_S)
        for form in ("text", "json")
    )
    text = said.stdout + said.stderr
    try:
        report = json.loads(raw.stdout)
    except ValueError:
        return Compared("error", text.strip().split("\n")[0], None, None, text)
    suspects = (report.get("diagnosis") or {}).get("suspects") or []
    first = report.get("first_difference") or {}
    category = suspects[0]["category"] if suspects else None
    return Compared(report["verdict"], report["first_line"], first.get("stage"), category, text)


def misses(seen: Compared, fault: Mapping[str, Any]) -> list[str]:
    """Return what the comparison of a fault lacks."""
    wrong = []
    if seen.verdict not in fault["verdicts"]:
        wrong.append(f"verdict {seen.verdict}, not {' or '.join(fault['verdicts'])}")
    stages = {STAGES_ALIKE.get(stage, stage) for stage in fault["stages"]}
    category = fault["category"]
    named = seen.stage in stages or seen.category in OUR_WORDS.get(category, set())
    if not named and (stages or category):
        wrong.append(f"first difference {seen.stage}, likely cause {seen.category}")
    if not any(re.search(words, seen.text, re.I) for words in fault["says"]):
        wrong.append(f"does not mention {' or '.join(fault['says'])}")
    return wrong


def files_of(script: str, place: Path, seen: Ran, outcome: Outcome) -> None:
    """Count the files of the bare command, and find those that the watched one changed."""
    alone = train(script, place / "bare", watched=False)
    outcome.files = len(tree(alone.work))
    wrong = unlike(alone, seen)
    if wrong:
        again = train(script, place / "bare-again", watched=False)
        wrong = unlike(alone, seen, again)
    outcome.wrong_files = wrong
    for name in sorted(tree(alone.work).keys() ^ set(EXPECTED[script]["files"])):
        outcome.wrong_ways.append(f"bare: {name} is missing or not in {SCRIPTS.name}/expected.json")
    codes = {"bare": alone.code, "exec": seen.code}
    wanted = {"bare": EXPECTED[script]["exit_code"], "exec": EXPECTED[script]["exec_exit_code"]}
    outcome.wrong_ways += [
        f"{way}: exit code {code}, not {wanted[way]}"
        for way, code in codes.items()
        if code != wanted[way]
    ]


def notes_of(ran: Ran) -> list[str]:
    """Return the canary's lines that say more than figures."""
    ours = ("canary", "  note", "  failed")
    return [line.strip() for line in ran.err.splitlines() if line.startswith(ours)]


def second_in_place(script: str, place: Path, records: Sequence[str], outcome: Outcome) -> None:
    """Run again in the folder that the first run left, and compare with the first runs."""
    wanted = EXPECTED[script]["again"]
    ran = train(script, place / "again", after=place / "exec-1")
    said = notes_of(ran)
    outcome.said += [f"again: {line}" for line in said]
    if not re.search(wanted["exec_says"], "\n".join(said), re.I):
        outcome.equal_wrong.append(f"again: exec does not mention {wanted['exec_says']}")
    if ran.run:
        seen = compare(ran.run, records)
        outcome.said.append(f"again: {seen.verdict}: {seen.first_line}")
        if seen.verdict not in wanted["verdicts"]:
            outcome.equal_wrong.append(f"again: verdict {seen.verdict}")


def judge(script: str, place: Path, faults: Sequence[str]) -> Outcome:
    """Run and judge one script."""
    expected, outcome = EXPECTED[script], Outcome(script)
    runs = [train(script, place / f"exec-{n}") for n in range(1, REPEATS + 1)]
    files_of(script, place, runs[0], outcome)
    outcome.said = notes_of(runs[-1])
    wanted = expected["equal"]
    records = [ran.run for ran in runs if ran.run]
    if not wanted["verdicts"]:
        if not re.search(wanted["says"], "\n".join(outcome.said), re.I):
            outcome.equal_wrong.append(f"exec does not mention {wanted['says']}")
        return outcome
    if len(records) < REPEATS:
        outcome.equal_wrong.append(f"{len(records)} records of {REPEATS} runs")
        return outcome
    outcome.equal = compare(records[-1], records[:-1])
    if outcome.equal.verdict not in wanted["verdicts"]:
        outcome.equal_wrong.append(f"verdict {outcome.equal.verdict}")
    if not re.search(wanted["says"], outcome.equal.text, re.I):
        outcome.equal_wrong.append(f"does not mention {wanted['says']}")
    if "again" in expected:
        second_in_place(script, place, records, outcome)
    for fault in faults:
        ran = train(script, place / f"fault-{fault}", fault)
        if ran.run is None:
            outcome.faults_wrong[fault] = ["no record"]
            continue
        outcome.faults[fault] = compare(ran.run, records)
        outcome.faults_wrong[fault] = misses(outcome.faults[fault], expected["faults"][fault])
    return outcome


def _new(outcome: Outcome) -> int:
    return sum(wrong.endswith("is new") for wrong in outcome.wrong_files)


def lines(outcome: Outcome) -> Iterator[str]:
    """Yield one script's figures as text."""
    good = outcome.files - len(outcome.wrong_files) + _new(outcome)
    yield f"{outcome.script}: {good} of {outcome.files} files equal"
    yield from (f"  ! {wrong}" for wrong in (*outcome.wrong_files, *outcome.wrong_ways))
    yield from (f"  exec: {line}" for line in outcome.said)
    if outcome.equal:
        yield f"  unchanged: {outcome.equal.verdict}: {outcome.equal.first_line}"
    yield from (f"  ! unchanged: {wrong}" for wrong in outcome.equal_wrong)
    for fault, wrong in outcome.faults_wrong.items():
        seen = outcome.faults.get(fault)
        if seen:
            yield f"  {fault}: {seen.verdict} ({seen.stage}, {seen.category}): {seen.first_line}"
        yield from (f"  ! {fault}: {what}" for what in wrong)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the figures of all scripts in a few lines."""
    files = sum(outcome.files for outcome in outcomes)
    new = sum(_new(outcome) for outcome in outcomes)
    other = sum(len(outcome.wrong_files) for outcome in outcomes) - new
    fine = sum(not outcome.equal_wrong for outcome in outcomes)
    faults = [wrong for outcome in outcomes for wrong in outcome.faults_wrong.values()]
    return (
        f"{files - other} of {files} files equal and {new} too many, "
        f"{fine} of {len(outcomes)} unchanged scripts right, "
        f"{sum(not wrong for wrong in faults)} of {len(faults)} faults named"
    )


def main() -> None:
    """Judge the scripts; print the figures and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", choices=EXPECTED, default=[])
    parser.add_argument("--no-faults", action="store_true", help="only files and unchanged runs")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep runs, run missing ones")
    parser.add_argument("-o", type=Path, metavar="FILE", help="the JSON document")
    given = parser.parse_args()
    place = (given.keep or Path(tempfile.mkdtemp(prefix="canary-strangers-"))).absolute()
    outcomes = []
    for script in given.only or EXPECTED:
        faults = [] if given.no_faults else list(EXPECTED[script]["faults"])
        outcomes.append(judge(script, place / script, faults))
        print("\n".join(lines(outcomes[-1])), flush=True)
        if given.o:
            given.o.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    print(table(outcomes))


if __name__ == "__main__":
    main()
