"""What a comparison says of each pull request: `python -m bench.pull_requests.judge --sources DIR`.

`main` is started twice, each branch once, all under `canary exec --exact` in fresh clones. Each
branch, and the second `main`, is compared with the first `main`. A run that is in the output folder
is not started again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.pull_requests import Change, Kind, Script, git, load, make
from bench.pull_requests.__main__ import FAILURES, OFFLINE_ON_ONE_CORE
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.report import Comparison, Place
from canary.compare.stats import compare_to_baseline, load_metrics
from canary.record.types import RunRecord

AGAIN = "main_again"
RED = ("changed", "regression")
SHOWN = 3
"""Places that an answer shows."""


@dataclass(frozen=True)
class Row:
    """What a comparison said of one branch."""

    script: str
    change: str
    kind: str
    verdict: str
    first_line: str
    places: list[str]
    cause: str
    right: bool
    """A fault is red; a benign change and an equal run are not."""
    placed: bool | None = None
    """Whether one of the shown places has the changed line; None without a fault."""
    caused: bool | None = None
    """Whether the first cause is one that the YAML accepts."""


def started(script: Script, folder: Path, branch: str, into: Path, python: str) -> RunRecord:
    """Return the record of a branch, which runs under the canary if it has none yet."""
    done = sorted(into.glob("*/metrics.json"))
    if not done:
        with tempfile.TemporaryDirectory() as where:
            clone = Path(where) / "run"
            git(folder, "clone", "-q", str(folder), str(clone))
            git(clone, "checkout", "-q", branch)
            command = [python if word == "python" else word for word in script.command]
            canary = [sys.executable, "-m", "canary.cli", "exec", "--exact", "-q", "--name", "it"]
            environment = os.environ | OFFLINE_ON_ONE_CORE
            ended = subprocess.run(
                [*canary, "-o", str(into), "--", *command],
                cwd=clone,
                env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
                capture_output=True,
                text=True,
                check=False,
            )
        done = sorted(into.glob("*/metrics.json"))
        if not done:
            raise RuntimeError(f"{script.name} {branch}: {ended.stderr[-2000:]}")
    return load_metrics(done[-1])


def judged(script: Script, sources: Path, out: Path, python: str) -> Iterator[Row]:
    """Yield what is said of each branch of a script."""
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "repository"
        make(script, sources, folder, python)
        branches = {change.name: change.name for change in script.changes}
        records = {
            name: started(script, folder, branch, out / script.name / name, python)
            for name, branch in {"main": "main", AGAIN: "main", **branches}.items()
        }
        before = records.pop("main")
        changes = {change.name: change for change in script.changes}
        for name, record in records.items():
            source = source_between(folder, before, record)
            found = compare_to_baseline(record, before, source=source)
            yield row_of(script, changes.get(name), name, found)


def row_of(script: Script, change: Change | None, name: str, found: Comparison) -> Row:
    """Return what a comparison said, and whether that is right."""
    shown = found.places.ran[:SHOWN] if found.verdict != "pass" else ()
    top = found.diagnosis.top_suspect
    cause = top.category.value if top is not None else ""
    places = [f"{place.name}:{place.line} {place.function} [{place.phase}]" for place in shown]
    kind = change.kind if change is not None else "equal"
    fault = change is not None and change.kind is Kind.FAULT
    row = Row(
        script.name,
        name,
        kind,
        found.verdict,
        found.first_line,
        places,
        cause,
        right=(found.verdict in RED) == fault and found.verdict != "error",
    )
    if change is None or not fault:
        return row
    return Row(
        **{**asdict(row)}
        | {"placed": any(holds(place, change) for place in shown), "caused": cause in change.causes}
    )


def holds(place: Place, change: Change) -> bool:
    """Whether a place has the changed line."""
    lines = place.removed if change.deleted else place.added
    return place.name == change.file and (change.line or "").strip() in map(str.strip, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument(
        "--python", default=sys.executable, help="has the packages that scripts need"
    )
    parser.add_argument("--only", action="append", help="name of a script")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/pull_requests"))
    chosen = parser.parse_args()
    rows: list[Row] = []
    for script in load():
        if chosen.only and script.name not in chosen.only:
            continue
        try:
            for row in judged(script, chosen.sources, chosen.output.absolute(), chosen.python):
                rows.append(row)
                marks = f"right={row.right} placed={row.placed} caused={row.caused}"
                print(f"{row.script} {row.change} ({row.kind}): {marks}\n  {row.first_line}")
                print(f"  {'; '.join(row.places)} cause: {row.cause}", flush=True)
        except FAILURES as error:
            print(f"{script.name}: {error}", flush=True)
    chosen.output.mkdir(parents=True, exist_ok=True)
    (chosen.output / "rows.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    faults = [row for row in rows if row.kind == Kind.FAULT]
    others = [row for row in rows if row.kind != Kind.FAULT]
    for words, those, good in (
        ("faults caught", faults, [row.right for row in faults]),
        ("changed line shown", faults, [bool(row.placed) for row in faults]),
        ("first cause right", faults, [bool(row.caused) for row in faults]),
        ("benign changes and equal runs not red", others, [row.right for row in others]),
    ):
        print(f"{words}: {sum(good)} of {len(those)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
