"""The recipe for a new exact signal: a value in the record and a row in the table, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from canary.compare.checks import CHECKS
from canary.compare.exact import counts, lane
from canary.compare.exact.counts import COUNTS, Count
from canary.compare.exact.signal_kinds import EVERY_KEY, Signal, number
from canary.compare.exact.signals import SIGNALS
from canary.compare.exact.stages import LEARNED_STAGES, STAGES
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.report.document import document
from tests.unit.comparing import plain, record


def momentum(of: Any) -> Any:
    """Where the made-up signal is: a look of a newer version wrote it."""
    return of.get("first_update", {}).get("momentum_norm")


ROW = Signal("first_update", "momentum_norm", number(momentum, lambda found: found.update))


@pytest.fixture(autouse=True)
def _one_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "SIGNALS", (*SIGNALS, ROW))


def looked(run: int, momentum_norm: float | None) -> RunRecord:
    """A run whose look saw this; None of a version that did not look."""
    made = record(run)
    if momentum_norm is not None:
        plain(made)["first_update"]["momentum_norm"] = momentum_norm
    return made


def compared(was: float | None, now: float | None) -> Comparison:
    """As the record's reader has them."""
    current, baseline = (
        RunRecord.model_validate(side.model_dump()) for side in (looked(2, now), looked(1, was))
    )
    return compare_to_baseline(current, baseline, gates=())


def test_a_made_up_signal_is_the_first_difference_of_its_stage() -> None:
    found = compared(0.25, 0.5)
    first = found.first_difference
    assert first is not None
    assert (first.stage, first.signal) == ("first_update", "momentum_norm")
    assert (first.baseline, first.current, first.relative) == (0.25, 0.5, 1.0)
    assert found.check("first_update").status == "changed"
    assert "momentum_norm 0.25 -> 0.5" in found.check("first_update").message
    assert document(found)["first_difference"]["order"] == first.order == 8


def test_a_version_that_did_not_record_the_signal_differs_in_nothing() -> None:
    for was, now in ((None, 0.5), (0.25, None)):
        assert compared(was, now).check("first_update").status == "pass"


def test_a_made_up_count_is_judged_by_the_limit_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def misses(of: RunRecord) -> float | None:
        return plain(of).get("work", {}).get("cache_misses")  # type: ignore[no-any-return]

    monkeypatch.setattr(counts, "COUNTS", (*COUNTS, Count("work", "cache_misses", misses)))
    limits = ("max_collectives_increase",)
    words = "cache misses per step"
    check = replace(CHECKS["operators"], name="cache_misses", title=words, limits=limits)
    monkeypatch.setitem(CHECKS, check.name, check)
    for more, status in ((0, "pass"), (1, "fail")):
        current, baseline = record(2), record(1)
        plain(current)["work"]["cache_misses"] = 5 + more
        plain(baseline)["work"]["cache_misses"] = 5
        found = compare_to_baseline(current, baseline, gates=())
        assert found.check("cache_misses").status == status
        differing = [(d.stage, d.signal) for d in found.differences]
        assert differing == ([("work", "cache_misses")] if more else [])


def test_every_row_is_of_a_stage_and_no_signal_has_two() -> None:
    rows: list[Signal | Count] = [*SIGNALS, *COUNTS]
    names = [(row.stage, row.name) for row in rows]
    assert len(set(names)) == len(names)
    order = [stage.name for stage in STAGES]
    places = [order.index(row.stage) for row in rows]
    assert places == sorted(places)
    assert {row.stage for row in SIGNALS} == set(LEARNED_STAGES)
    assert {row.stage for row in SIGNALS if row.name == EVERY_KEY} == {
        "data",
        "batches",
        "model",
        "rollout",
        "trajectory",
    }
