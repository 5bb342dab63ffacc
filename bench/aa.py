"""False alarms on a real machine: `python -m bench.aa [--runs 100] [--load]`.

Runs one unchanged canary many times, under a varying background load. Compares the runs as users
do: each run with the twenty before it, and in alternating pairs (3, 5 and 8). Any verdict except
`pass` and `inconclusive` is a false alarm. Exit code 1 if the exact lane raised one, or the timing
lane more than one.

The same runs are also judged without CPU time, to show what it adds, and with simulated extra work
on the current side.

`-o` keeps the runs in a folder; the next call continues from them.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import TIER_THRESHOLDS, Thresholds
from canary.compare.timing.lane import DECISIONS
from canary.config.load import load_config
from canary.protocol.job import Listener
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.runner.run import run_canary

HISTORY = 20
MOST_TIMING_ALARMS = 1
BURST_S = (2.0, 40.0)
MORE_WORK = (0.1, 0.2, 0.5, 1.0)
TIMES = (
    "mean_step_time_s",
    "median_step_time_s",
    "cpu_s_per_step",
    "on_core_step_time_s",
)
"""Fields of a launch, in seconds per step."""
CPU = TIMES[2:]


def load() -> None:
    """Keep one core busy in bursts of random lengths, with random pauses."""
    chance = random.Random(0)
    while True:
        end = time.monotonic() + chance.uniform(*BURST_S)
        while time.monotonic() < end:
            sum(number * number for number in range(10_000))
        time.sleep(chance.uniform(*BURST_S))


def repeat(config: str, settings: Sequence[str], runs: int, folder: Path) -> list[RunRecord]:
    """Run until the folder holds `runs` completed runs. Return them by time."""
    loaded = load_config(config, settings)
    done = sorted(folder.glob("*/metrics.json"))
    records = [record for path in done if (record := load_record(path)).status == "completed"]
    while len(records) < runs:
        record, place, result = run_canary(loaded, Listener(), folder)
        if result.status != "completed":
            raise SystemExit(f"run {place} ended as {result.status}: {result.reason}")
        records.append(record)
        busy = f"load {os.getloadavg()[0]:.1f}"
        step = 1000 * record.perf.step_time.median
        print(f"{len(records)}/{runs} {step:.1f} ms, {busy}", flush=True)
    return sorted(records, key=lambda record: (record.timestamp, record.run_id))


def changed(record: RunRecord, fields: Sequence[str], factor: float | None) -> RunRecord:
    """Return the record with these times of its launches multiplied; None removes them."""
    launches = []
    for launch in record.launches:
        known = {name: value for name in fields if (value := getattr(launch, name)) is not None}
        times = {name: factor and factor * value for name, value in known.items()}
        launches.append(launch.model_copy(update=times))
    return record.model_copy(update={"launches": launches})


def comparisons(
    records: Sequence[RunRecord], thresholds: Thresholds, more_work: float = 0.0
) -> dict[str, list[Comparison]]:
    """Compare each run with the twenty before it, and blocks of alternating pairs. `more_work` is
    the share of work added to the current side."""

    def slower(side: Sequence[RunRecord]) -> list[RunRecord]:
        return [changed(record, TIMES, 1 + more_work) for record in side]

    found: dict[str, list[Comparison]] = {}
    found[f"1 run, history of {HISTORY}"] = [
        compare_to_baseline(
            slower([records[i]]), records[i - HISTORY : i], thresholds, history=True
        )
        for i in range(HISTORY, len(records))
    ]
    for pairs in DECISIONS:
        blocks = []
        for start in range(0, len(records) - 2 * pairs + 1, 2 * pairs):
            head, base = alternate(records[start : start + 2 * pairs])
            blocks.append(compare_to_baseline(slower(head), base, thresholds, paired=True))
        found[f"{pairs} pairs"] = blocks
    return found


def alternate(records: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """Split runs in the order base head head base ... into (current, baseline)."""
    base = [r for i, r in enumerate(records) if i % 4 in (0, 3)]
    head = [r for i, r in enumerate(records) if i % 4 in (1, 2)]
    return head, base


def alarms(found: Sequence[Comparison], lanes: tuple[str, ...]) -> list[str]:
    """Return a line for each comparison with failed checks in these lanes: names and messages."""
    lines = []
    for comparison in found:
        failed = [check for check in comparison.failed_checks if check.lane in lanes]
        if failed:
            lines.append("; ".join(f"{check.name}: {check.message}" for check in failed))
    return lines


def by_cpu_time(records: Sequence[RunRecord], thresholds: Thresholds) -> list[str]:
    """Return Markdown: verdicts by wall time alone and with CPU time, for equal and more work."""
    lines = [
        "| comparison | judged by | equal runs | "
        + " | ".join(f"+{more:.0%} work" for more in MORE_WORK)
        + " |",
        "|---|---|" + "---|" * (1 + len(MORE_WORK)),
    ]
    sides = {
        "wall time": [changed(record, CPU, None) for record in records],
        "wall time and CPU time": list(records),
    }
    judged = {
        name: [comparisons(side, thresholds, more) for more in (0.0, *MORE_WORK)]
        for name, side in sides.items()
    }
    for design in judged["wall time"][0]:
        for name, by_size in judged.items():
            cells = []
            for found in by_size:
                verdicts = Counter(comparison.verdict for comparison in found[design])
                cells.append(", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common()))
            lines.append(f"| {design} | {name} | {' | '.join(cells)} |")
    return lines


def spreads(records: Sequence[RunRecord]) -> list[str]:
    """Return the range of each time over the runs, in ms, and the standard deviation of its log."""
    lines = []
    for name in TIMES:
        values = [getattr(launch, name) for r in records for launch in r.launches]
        known = [1000 * value for value in values if value is not None]
        if len(known) > 1:
            sd = statistics.stdev(math.log(value) for value in known)
            lines.append(f"{name}: {min(known):.1f} to {max(known):.1f} ms, spread {sd:.1%}")
    return lines


def main() -> int:
    """Print one row per design. Return 1 after too many false alarms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", default="configs/sft_smoke.yaml")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--load", action="store_true", help="keep one core busy in bursts")
    parser.add_argument("--tiers", nargs="+", default=["default", "smoke", "perf", "nightly"])
    parser.add_argument("-o", "--output-dir", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = arguments.output_dir or Path(tempfile.mkdtemp(prefix="canary-aa-"))
    busy = multiprocessing.Process(target=load, daemon=True)
    if arguments.load:
        busy.start()
    try:
        records = repeat(arguments.config, arguments.set, arguments.runs, folder)
    finally:
        if arguments.load:
            busy.terminate()
    print(f"{len(records)} runs", *spreads(records), "", sep="\n")
    print("| tier | comparison | comparisons | exact alarms | timing alarms | other | verdicts |")
    print("|---|---|---|---|---|---|---|")
    exact_total, timing_total = 0, 0
    rows = []
    for tier in arguments.tiers:
        for design, found in comparisons(records, TIER_THRESHOLDS[tier]).items():
            exact = alarms(found, ("exact", "rule"))
            timing, other = alarms(found, ("timing",)), alarms(found, ("trend",))
            verdicts = Counter(comparison.verdict for comparison in found)
            words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            print(
                f"| {tier} | {design} | {len(found)} | {len(exact)} | {len(timing)} "
                f"| {len(other)} | {words} |"
            )
            exact_total = max(exact_total, len(exact))
            timing_total = max(timing_total, len(timing))
            rows.append(
                {"tier": tier, "design": design, "verdicts": verdicts, "alarms": exact + timing}
            )
            for message in (*exact, *timing, *other):
                print(f"    {message}")
    print("", *by_cpu_time(records, TIER_THRESHOLDS[arguments.tiers[0]]), sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({"runs": len(records), "rows": rows}, indent=1))
    return int(exact_total > 0 or timing_total > MOST_TIMING_ALARMS)


if __name__ == "__main__":
    raise SystemExit(main())
