"""One number for one thing: what is shown of a side is what its checks were judged by."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.config.metric_gates import MetricGate
from canary.record.types import AlertSummary, Launch, Perf, RunRecord, Stability
from canary.report.document import document
from canary.report.render import render
from tests.unit.comparing import altered, crashed, record, records

UNEVEN = [0.030, 0.035, 0.0628]
"""The newest is far from the others."""
FIGURES = {
    "step_time_median": ("step_time_median_s", 1e-3),
    "step_time_mean": ("step_time_mean_s", 1e-3),
    "tokens_per_sec": ("tokens_per_sec", 1.0),
    "max_memory": ("max_mem_mb", 1.0),
    "final_loss": ("final_loss", 1.0),
    "nan_steps": ("nan_steps", 1.0),
}


def uneven() -> Comparison:
    baseline = records(UNEVEN, memory_sd=0.05)
    return compare_to_baseline(record(10, 0.03657), baseline)


@pytest.mark.parametrize("name", FIGURES)
def test_the_summary_of_several_runs_has_the_figures_of_the_checks(name: str) -> None:
    found = uneven()
    check, (figure, factor) = found.check(name), FIGURES[name]
    for side, value in ((found.baseline, check.baseline), (found.current, check.current)):
        assert isinstance(value, float | int)
        assert side.summary[figure] == pytest.approx(value * factor)
    assert document(found)["baseline"]["summary"][figure] == found.baseline.summary[figure]


def test_a_baseline_run_that_cannot_be_used_is_not_counted_and_is_named() -> None:
    broken = crashed(record(3, 9.0, run_id="lost"), "oom")
    found = compare_to_baseline(record(10, 0.03657), [*records(UNEVEN), broken])
    assert len(found.baseline.run_ids) == 3
    assert any("lost" in note and "out of memory" in note for note in found.notes)


def look_alone(whole: RunRecord) -> RunRecord:
    """The record as of `exact: true`: nothing was timed, no loss told, nothing watched."""
    made = RunRecord(run_id=whole.run_id, timestamp=whole.timestamp, status="completed")
    launch = Launch(index=0, status="completed", steps=12, look_steps=12)
    kept = {"config": whole.config | {"exact": True}, "env": whole.env, "exact": whole.exact}
    return made.model_copy(
        update={**kept, "launches": [launch], "alert_summary": AlertSummary(total=0)}
    )


def test_looks_alone_that_learn_the_same_pass() -> None:
    found = compare_to_baseline(look_alone(record(10)), look_alone(record(1)))
    said = "Pass: learns the same in the first 12 steps: "
    said += "batches, losses, gradients and updates are identical."
    assert (found.verdict, found.exit_code(), found.first_line) == ("pass", 0, said)


@pytest.mark.parametrize("whole_first", [True, False])
def test_a_look_alone_and_a_whole_run_are_compared_in_what_both_have(whole_first: bool) -> None:
    """The last loss of a look, its peak and the mean of its metrics are not those of a training."""
    whole = record(1 if whole_first else 10)
    losses = whole.stability.loss_values[:12]
    alone = look_alone(record(10 if whole_first else 1)).model_copy(
        update={
            "stability": Stability(loss_values=losses, grad_norm_values=[90.0] * 12),
            "perf": Perf(max_mem_mb=4000.0),
        }
    )
    gates = (MetricGate(name="loss", statistic="last", limit="5%"),)
    sides = (alone, whole) if whole_first else (whole, alone)
    found = compare_to_baseline(*sides, metrics=gates)
    assert found.verdict == "inconclusive"
    assert found.first_line.startswith(
        "Learns the same: batches, losses, gradients and updates are identical."
    )
    end = "Speed was not measured: one side ended after its look (exact: true)."
    assert found.first_line.endswith(end)
    judged = [check for check in found.checks if check.status != "skip"]
    assert {check.lane for check in judged} == {"exact", "rule"}
    assert {check.status for check in judged} == {"pass"}
    (gate,) = (check for check in found.checks if check.name.startswith("metrics."))
    assert gate.message == "one side ended after its look (exact: true)"
    shown = (found.current if whole_first else found.baseline).summary
    assert (shown["final_loss"], shown["max_mem_mb"]) == (None, None)


def test_a_look_that_lacks_what_the_other_has_is_not_called_equal() -> None:
    bare = altered(look_alone(record(10)), "exact", "first_loss", to={})
    found = compare_to_baseline(bare, look_alone(record(1)))
    assert "is equal" not in found.first_line


def test_a_loop_that_told_no_loss_has_no_count_of_bad_ones_and_its_own_number_of_steps() -> None:
    def silent(number: int) -> RunRecord:
        return altered(record(number), "stability", to=Stability())

    steps = record(1).launches[0].steps
    found = compare_to_baseline(silent(10), [silent(number) for number in range(3)])
    assert found.check("nan_steps").status == "skip"
    assert found.current.summary["nan_steps"] is None
    assert found.current.steps == steps > 0


RELATIVE: list[tuple[str, tuple[str | int, ...]]] = [
    ("first_loss", ("exact", "first_loss", "loss")),
    ("first_gradient", ("exact", "first_gradient", "total")),
    ("first_update", ("exact", "first_update", "delta_norm")),
    ("trajectory", ("exact", "trajectory", "losses", 3)),
]


@pytest.mark.parametrize(("stage", "path"), RELATIVE)
def test_relative_is_a_share_of_the_baseline_in_json_words_and_percent(
    stage: str, path: tuple[str | int, ...]
) -> None:
    was: Any = record(1)
    for place in path:
        was = getattr(was, str(place)) if isinstance(was, RunRecord) else was[place]
    found = compare_to_baseline(altered(record(10), *path, to=was * 4.0), record(1))
    told = document(found)["first_difference"]
    assert told["stage"] == stage
    assert told["relative"] == pytest.approx(3.0)
    assert told["scale"] == ""
    assert found.check(stage).delta_pct == pytest.approx(100 * 3.0)
    if "%" in told["message"]:
        assert f"{100 * 3.0:g}%" in told["message"]


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_loss_that_is_no_number_has_one_name_and_no_share(form: str) -> None:
    broken = altered(record(10), "exact", "first_loss", "loss", to="nan")
    broken = altered(broken, "stability", "loss_values", -1, to=math.nan)
    shown = render(compare_to_baseline(broken, record(1)), form)
    assert "inf relative" not in shown
    assert not re.search(r"\b(nan|inf)\b(?!\\)", shown)
