"""The table of checks: what comparisons make is in it, and it holds nothing else."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from canary.compare.checks import CHECKS, METRICS, is_metric_gate
from canary.compare.report import Check, Comparison
from canary.compare.rules import RULES
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds
from canary.record.summary import with_alerts
from tests.contract.tables import checks_table
from tests.unit.compare.exact.test_exact_repeats import run
from tests.unit.compare.test_threshold_fields import CASES
from tests.unit.comparing import (
    altered,
    committed,
    growing,
    history,
    on_gpu,
    record,
    records,
    scatter,
)
from tests.unit.gating import gate
from tests.unit.ppo_records import ppo
from tests.unit.record.test_metric_names import telling

DOCS = Path(__file__).parents[3] / "docs"


def comparisons() -> list[Comparison]:
    """Of every kind: trainers, devices, histories, runs that scatter or differ."""
    cpu = [record(number, cpu_s=0.1 * f) for number, f in enumerate(scatter(20, 0.01))]
    gpu = [
        altered(growing(on_gpu(record(n)), 0.0, 0.1), "memory", "peak_reserved_bytes", to=2**30)
        for n in range(4)
    ]
    watched = [with_alerts(record(number), []) for number in range(4)]
    unequal = [run(8, 1e-4, sha="b" * 40), run(9, sha="b" * 40)]
    return [
        compare_to_baseline(record(100, cpu_s=0.1), cpu, history=True, anchor=cpu[:3]),
        compare_to_baseline(gpu[3], gpu[:3]),
        compare_to_baseline(records([0.1 * f for f in scatter(8, 0.05)], 100), history(0.005, 8)),
        compare_to_baseline(watched[3], watched[:3]),
        compare_to_baseline(unequal, (run(0), run(1))),
        compare_to_baseline(ppo(1), ppo(0)),
        compare_to_baseline(record(9), committed(record(8))),
        compare_to_baseline(record(9), record(8), metrics=[gate("loss", limit=5.0)]),
        compare_to_baseline(telling("reward", "margin", 1.0, 1), telling("reward", "margin", 1.0)),
        *(
            compare_to_baseline(record(9, kind=kind), record(8, kind=kind))
            for kind in ("sft", "dpo", "grpo")
        ),
    ]


@cache
def made() -> list[Check]:
    """Every check of these."""
    return [check for found in comparisons() for check in found.checks]


def test_every_check_that_is_made_is_a_row_of_the_table() -> None:
    for check in made():
        row = CHECKS[row_of(check)]
        assert (check.group, check.lane) == (row.group, row.lane), check.name


def row_of(check: Check) -> str:
    """The row of a check: all gates of `metrics:` share one."""
    return METRICS if is_metric_gate(check.name) else check.name


def test_no_row_of_the_table_is_without_a_check() -> None:
    asked = {rule.id for rule in RULES}  # a rule that is not asked has no check
    assert set(CHECKS) - {row_of(check) for check in made()} - asked == set()


def test_every_limit_is_read_by_a_check_and_every_check_reads_limits_that_exist() -> None:
    assert {key for row in CHECKS.values() for key in row.limits} == set(Thresholds.model_fields)
    for case in CASES:
        row = METRICS if is_metric_gate(case.check) else case.check
        assert case.field in CHECKS[row].limits


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    """`UPDATE_GOLDEN=1` writes it."""
    page = DOCS / "verdict.md"
    before, rest = page.read_text(encoding="utf-8").split("tests.contract.tables -->\n")
    table, after = rest.split("<!-- end", 1)
    if os.environ.get("UPDATE_GOLDEN"):
        text = f"{before}tests.contract.tables -->\n{checks_table()}<!-- end{after}"
        page.write_text(text, encoding="utf-8")
    else:
        assert table == checks_table()
