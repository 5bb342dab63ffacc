"""Scripts written like public ones, in `canary exec`: `python -m bench.strangers`.

The scripts and the expected results (`expected.json`, written before the first run) are in
`tests/integration/exec/strange`; no other test has a script of their shape. Three unchanged runs
must not be red; each planted fault must be named.

`--keep` keeps the runs in a folder; the next call runs only missing ones.
"""

from __future__ import annotations

import argparse
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
    """One ended command, with the run folder that it left."""

    code: int
    err: str
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
    said: list[str] = field(default_factory=list)
    equal: Compared | None = None
    equal_wrong: list[str] = field(default_factory=list)
    faults: dict[str, Compared] = field(default_factory=dict)
    faults_wrong: dict[str, list[str]] = field(default_factory=dict)


def train(script: str, place: Path, fault: str = "") -> Ran:
    """Run a script in `place` under `canary exec`, or read the ended run there."""
    kept = place / "ran.json"
    if kept.exists():
        return Ran(**json.loads(kept.read_text()))
    shutil.rmtree(place, ignore_errors=True)
    work, runs = place / "work", place / "runs"
    work.mkdir(parents=True)
    shutil.copy(SCRIPTS / f"{script}.py", work / "train.py")
    words = [sys.executable, "-m", "canary.cli", "exec", "--name", script, "-o", str(runs)]
    done = subprocess.run(
        [*words, "--", sys.executable, "train.py"],
        cwd=work,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "FAULT": fault},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    left = [*runs.glob("*/metrics.json"), *(work / "canary_output").glob("*/metrics.json")]
    ran = Ran(done.returncode, done.stderr, str(left[0].parent) if left else None)
    kept.write_text(json.dumps(asdict(ran)))
    return ran


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


def notes_of(ran: Ran) -> list[str]:
    """Return the canary's lines that say more than figures."""
    ours = ("canary", "  note", "  failed")
    return [line.strip() for line in ran.err.splitlines() if line.startswith(ours)]


def judge(script: str, place: Path, faults: Sequence[str]) -> Outcome:
    """Run and judge one script."""
    expected, outcome = EXPECTED[script], Outcome(script)
    runs = [train(script, place / f"exec-{n}") for n in range(1, REPEATS + 1)]
    outcome.said = notes_of(runs[-1])
    outcome.equal_wrong = [f"exit code {ran.code}" for ran in runs if ran.code]
    records = [ran.run for ran in runs if ran.run]
    if len(records) < REPEATS:
        outcome.equal_wrong.append(f"{len(records)} records of {REPEATS} runs")
        return outcome
    outcome.equal = compare(records[-1], records[:-1])
    wanted = expected["equal"]
    if outcome.equal.verdict not in wanted["verdicts"]:
        outcome.equal_wrong.append(f"verdict {outcome.equal.verdict}")
    if not re.search(wanted["says"], outcome.equal.text, re.I):
        outcome.equal_wrong.append(f"does not mention {wanted['says']}")
    for fault in faults:
        ran = train(script, place / f"fault-{fault}", fault)
        if ran.run is None:
            outcome.faults_wrong[fault] = ["no record"]
            continue
        outcome.faults[fault] = compare(ran.run, records)
        outcome.faults_wrong[fault] = misses(outcome.faults[fault], expected["faults"][fault])
    return outcome


def lines(outcome: Outcome) -> Iterator[str]:
    """Yield one script's figures as text."""
    yield outcome.script
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
    """Return the figures of all scripts in a line."""
    fine = sum(not outcome.equal_wrong for outcome in outcomes)
    faults = [wrong for outcome in outcomes for wrong in outcome.faults_wrong.values()]
    return (
        f"{fine} of {len(outcomes)} unchanged scripts right, "
        f"{sum(not wrong for wrong in faults)} of {len(faults)} faults named"
    )


def main() -> None:
    """Judge the scripts; print the figures and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", choices=EXPECTED, default=[])
    parser.add_argument("--no-faults", action="store_true", help="only unchanged runs")
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
