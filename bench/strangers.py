"""Scripts as strangers write them, alone and through `canary exec`: `python -m bench.strangers`.

The scripts and what an honest tool should say of them (`expected.json`, written before the first
run) are in `tests/integration/exec/strange`. Each runs bare and watched into separate folders; both
must leave the same files. Three unchanged runs must not be red; each planted fault must be named.

A folder given with `--keep` keeps the runs; called again, it runs only what is missing there.
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
"""Keys whose values are seconds: no two runs of a command have them alike."""
OUR_WORDS = {
    "data": {"data", "tokenization"},
    "data loading": {"dataloader"},
    "loss": {"objective"},
    "model": {"adapter", "objective"},
    "optimizer": {"optimizer"},
}
"""Categories of `expected.json`, in plain words, as docs/diagnosis.md names them."""
STAGES_ALIKE = {"parameters": "model"}


@dataclass(frozen=True)
class Ran:
    """One ended command, where it worked, and the record that it left."""

    code: int
    out: str
    err: str
    work: str
    run: str | None


@dataclass(frozen=True)
class Compared:
    """What `canary compare` said."""

    verdict: str
    first_line: str
    stage: str | None
    category: str | None
    text: str


@dataclass
class Outcome:
    """One script's figures; a list says what was not as expected."""

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
    """Runs a script in `place`, once: a place that holds an ended run is read.

    `after` names the place of a run whose folder, as that run left it, this one begins in.
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
    """Runs the command in the folder as it is."""
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
    """Files that a script left, by their path in its folder; records are the canary's own."""
    root = Path(work)
    paths = {str(path.relative_to(root)): path for path in sorted(root.rglob("*"))}
    ours = ("train.py", "canary_output")
    return {
        name: path
        for name, path in paths.items()
        if not path.is_dir() and name.split("/")[0] not in ours
    }


def content(path: Path, timeless: bool = False) -> str:
    """What is in a file; without the values that are times, for those that hold some."""
    data = path.read_bytes()
    if timeless and path.suffix == ".json":
        data = json.dumps(_timeless(json.loads(data))).encode()
    return hashlib.sha256(data).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if not OF_TIME.search(key)}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def unlike(alone: Ran, seen: Ran, again: Ran | None = None) -> list[str]:
    """Files missing, new or other; `again` is a second bare run, for what never repeats."""
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
            wrong.append(f"{name} is other")
    return sorted(wrong)


def compare(current: str, baselines: Sequence[str]) -> Compared:
    """`canary compare` as a user calls it, newest against the others."""
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
    """What the comparison of a fault lacks."""
    wrong = []
    if seen.verdict not in fault["verdicts"]:
        wrong.append(f"verdict {seen.verdict}, not {' or '.join(fault['verdicts'])}")
    stages = {STAGES_ALIKE.get(stage, stage) for stage in fault["stages"]}
    category = fault["category"]
    named = seen.stage in stages or seen.category in OUR_WORDS.get(category, set())
    if not named and (stages or category):
        wrong.append(f"first difference {seen.stage}, likely cause {seen.category}")
    if not any(re.search(words, seen.text, re.I) for words in fault["says"]):
        wrong.append(f"says nothing of {' or '.join(fault['says'])}")
    return wrong


def files_of(script: str, place: Path, seen: Ran, outcome: Outcome) -> None:
    """Counts what the bare command left, and what of it the watched one left alike."""
    alone = train(script, place / "bare", watched=False)
    outcome.files = len(tree(alone.work))
    wrong = unlike(alone, seen)
    if wrong:
        again = train(script, place / "bare-again", watched=False)
        wrong = unlike(alone, seen, again)
    outcome.wrong_files = wrong
    for name in sorted(tree(alone.work).keys() ^ set(EXPECTED[script]["files"])):
        outcome.wrong_ways.append(f"bare: {name} is not as {SCRIPTS.name}/expected.json says")
    codes = {"bare": alone.code, "exec": seen.code}
    wanted = {"bare": EXPECTED[script]["exit_code"], "exec": EXPECTED[script]["exec_exit_code"]}
    outcome.wrong_ways += [
        f"{way}: exit code {code}, not {wanted[way]}"
        for way, code in codes.items()
        if code != wanted[way]
    ]


def told(ran: Ran) -> list[str]:
    """Lines of the canary's own that say more than figures."""
    ours = ("canary", "  note", "  failed")
    return [line.strip() for line in ran.err.splitlines() if line.startswith(ours)]


def second_in_place(script: str, place: Path, records: Sequence[str], outcome: Outcome) -> None:
    """A second run in the folder that the first one left, judged against the first ones."""
    wanted = EXPECTED[script]["again"]
    ran = train(script, place / "again", after=place / "exec-1")
    said = told(ran)
    outcome.said += [f"again: {line}" for line in said]
    if not re.search(wanted["exec_says"], "\n".join(said), re.I):
        outcome.equal_wrong.append(f"again: exec says nothing of {wanted['exec_says']}")
    if ran.run:
        seen = compare(ran.run, records)
        outcome.said.append(f"again: {seen.verdict}: {seen.first_line}")
        if seen.verdict not in wanted["verdicts"]:
            outcome.equal_wrong.append(f"again: verdict {seen.verdict}")


def judge(script: str, place: Path, faults: Sequence[str]) -> Outcome:
    """Everything of one script."""
    expected, outcome = EXPECTED[script], Outcome(script)
    runs = [train(script, place / f"exec-{n}") for n in range(1, REPEATS + 1)]
    files_of(script, place, runs[0], outcome)
    outcome.said = told(runs[-1])
    wanted = expected["equal"]
    records = [ran.run for ran in runs if ran.run]
    if not wanted["verdicts"]:
        if not re.search(wanted["says"], "\n".join(outcome.said), re.I):
            outcome.equal_wrong.append(f"exec says nothing of {wanted['says']}")
        return outcome
    if len(records) < REPEATS:
        outcome.equal_wrong.append(f"{len(records)} records of {REPEATS} runs")
        return outcome
    outcome.equal = compare(records[-1], records[:-1])
    if outcome.equal.verdict not in wanted["verdicts"]:
        outcome.equal_wrong.append(f"verdict {outcome.equal.verdict}")
    if not re.search(wanted["says"], outcome.equal.text, re.I):
        outcome.equal_wrong.append(f"says nothing of {wanted['says']}")
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
    """One script's figures for a person."""
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
    """The figures as docs/figures.md has them."""
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
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", choices=EXPECTED, default=[])
    parser.add_argument("--no-faults", action="store_true", help="files and unchanged runs alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep runs, run the missing")
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
