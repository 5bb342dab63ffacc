"""Diagnosis on the fault corpus: `python -m bench.faults`.

Trains every row of all corpora through `canary run` or `canary exec` and compares it with its clean
training. Prints as Markdown: per row whether it was caught, the first difference, the top suspect
and whether it is right; rates with 95% intervals; and how often suspects are right, by claimed
confidence. If only time shows a row's change, it runs five times in turn with its clean training,
or eight times if five decide nothing.

`--keep DIR` keeps the records and trains only missing ones. `--reuse DIR` trains nothing and judges
a change of the rules in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from bench.corpus import (
    benign,
    blind_learned,
    blind_learning,
    blind_work,
    listed,
    ppo,
    ppo_blind,
    second_learned,
    second_learning,
    second_work,
)
from bench.corpus.row import Row
from bench.corpus.score import Outcome, calibration, outcome, rates, troubled
from bench.corpus.store import Missing, Store, decisions_of
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.checks import TIMING_GATES
from canary.compare.timing.lane import FAMILY_BUDGET, decision_budget, is_settled
from canary.errors import CanaryError

CORPORA: dict[str, tuple[Row, ...]] = {
    "listed": listed.ROWS,
    "blind": (*blind_learned.ROWS, *blind_learning.ROWS, *blind_work.ROWS),
    "second": (*second_learned.ROWS, *second_learning.ROWS, *second_work.ROWS),
    "benign": benign.ROWS,
    "ppo": ppo.ROWS,
    "ppo_benign": ppo.BENIGN,
    "ppo_blind": ppo_blind.ROWS,
    "ppo_blind_benign": ppo_blind.BENIGN,
}
BLIND = ("blind", "second", "ppo_blind")
"""Corpora written without knowledge of the rules."""
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers")


def compared(rows: Sequence[tuple[str, Row]], store: Store) -> Iterator[Outcome]:
    """Yield each row's outcome when its trainings have ended."""
    for corpus, row in rows:
        try:
            found = judged(row, store)
        except (Missing, CanaryError, subprocess.TimeoutExpired) as error:
            yield troubled(row, corpus, str(error))
        else:
            yield outcome(row, corpus, found)


def judged(row: Row, store: Store) -> Comparison:
    """Return the comparison of a row, after the fewest runs that decide it.

    Raises:
        Missing: a training of its first decision is missing.
    """
    found: Comparison | None = None
    for runs in decisions_of(row):
        try:
            changed, clean = store.sides(row, runs)
        except Missing:
            if found is None:
                raise
            break
        gates = TIMING_GATES if row.timed else ()
        budget = decision_budget(runs) if row.paired else FAMILY_BUDGET
        found = compare_to_baseline(changed, clean, paired=row.paired, gates=gates, budget=budget)
        if is_settled(found):
            break
    assert found is not None  # a row has at least one decision
    return found


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return rows, rates and calibration as tables."""
    parts = []
    for corpus in CORPORA:
        rows = [one for one in outcomes if one.corpus == corpus]
        if rows:
            benign = corpus.endswith("benign")
            parts.append(_benign_table(rows) if benign else _fault_table(corpus, rows))
    lines = ["| share | of rows |", "|---|---|"]
    lines += [f"| {rate.name} | {rate} |" for rate in rates(outcomes)]
    parts.append("\n".join(lines))
    for corpus in BLIND:
        bands = calibration(outcomes, corpus)
        if not bands:
            continue
        lines = [f"| claimed confidence, {corpus} rows | mean | right |", "|---|---|---|"]
        lines += [f"| {band.right.name} | {band.claimed:.2f} | {band.right} |" for band in bands]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _fault_table(corpus: str, rows: Sequence[Outcome]) -> str:
    lines = [
        f"| {corpus} row | caught | first difference | expected | top suspect | confidence "
        "| right |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        claimed = "" if one.confidence is None else f"{one.confidence:.2f}"
        first = one.trouble or one.first_difference or "none"
        expected = " or ".join(filter(None, (one.expected, one.also)))
        lines.append(
            f"| {one.id} | {one.verdict if one.caught else f'no: {one.verdict}'} | {first} "
            f"| {expected} | {one.suspect or 'none'} | {claimed} | {'yes' if one.right else 'no'} |"
        )
    return "\n".join(lines)


def _benign_table(rows: Sequence[Outcome]) -> str:
    lines = ["| benign row | verdict | first difference | failed checks |", "|---|---|---|---|"]
    for one in rows:
        first = one.trouble or one.first_difference or "none"
        lines.append(f"| {one.id} | {one.verdict} | {first} | {', '.join(one.failed) or 'none'} |")
    return "\n".join(lines)


def document(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the JSON document: rows, rates, commit, packages and machine."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "rates": {
            rate.name: {"of": [rate.successes, rate.trials], "interval_95": rate.interval}
            for rate in rates(outcomes)
        },
        "calibration": [asdict(band) for band in calibration(outcomes)],
        "calibration_second": [asdict(band) for band in calibration(outcomes, "second")],
        "calibration_ppo_blind": [asdict(band) for band in calibration(outcomes, "ppo_blind")],
        "rows": [asdict(one) | {"caught": one.caught, "right": one.right} for one in outcomes],
    }


def chosen(corpora: Sequence[str], ids: Sequence[str]) -> list[tuple[str, Row]]:
    """Return (corpus, row) of the requested rows. Raises SystemExit for an unknown id."""
    found = [(name, row) for name in corpora for row in CORPORA[name]]
    unknown = set(ids) - {row.id for _, row in found}
    if unknown:
        raise SystemExit(f"no row {', '.join(sorted(unknown))} in {', '.join(corpora)}")
    return [(name, row) for name, row in found if not ids or row.id in ids]


def main() -> None:
    """Print the tables; with `-o`, write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--only", nargs="+", metavar="ID", default=[])
    parser.add_argument("-j", type=int, default=1, metavar="N", help="trainings at a time")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="DIR", help="keep records, train missing ones")
    where.add_argument("--reuse", type=Path, metavar="DIR", help="train nothing")
    parser.add_argument("-o", type=Path, metavar="FILE", help="the JSON document")
    asked = parser.parse_args()
    rows = chosen(asked.corpus, asked.only)
    with tempfile.TemporaryDirectory() as passing:
        root = (asked.keep or asked.reuse or Path(passing)).absolute()
        store = Store(root, asked.j, train=asked.reuse is None)
        try:
            store.begin([row for _, row in rows])
            outcomes = []
            for one in compared(rows, store):
                outcomes.append(one)
                print(f"{one.id}: {one.verdict}, {one.suspect}", file=sys.stderr)
        finally:
            store.close()
    print(markdown(outcomes))
    if asked.o is not None:
        asked.o.parent.mkdir(parents=True, exist_ok=True)
        asked.o.write_text(json.dumps(document(outcomes), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
