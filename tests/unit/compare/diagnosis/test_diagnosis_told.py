"""What is told of a diagnosis: undecided, of a run that failed, and each fact once."""

from __future__ import annotations

from typing import Any

from canary.anomaly import Alert
from canary.compare.exact.changes import shown
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds
from canary.record.types import RunRecord
from canary.report.render import render
from tests.unit.comparing import altered, example
from tests.unit.diagnosing import LOSSES, TRAJECTORY, changed, sides


def test_between_runs_that_are_not_comparable_no_difference_is_a_cause() -> None:
    current, baseline = example("dpo"), example("sft")
    found = compare_to_baseline(current, baseline)
    assert found.first_line.startswith("Error: not comparable, two trainers")
    assert not found.diagnosis.suspects
    assert "Likely cause" not in render(found, "text")
    for form in ("text", "markdown"):
        assert "step time" not in render(found, form)


def test_what_stands_out_is_told_where_nothing_is_decided_and_said_to_be_undecided() -> None:
    """One run against one: the clock decides nothing, and the data phase alone grew."""
    before, after = sides()
    step = dict.fromkeys(("data", "forward", "backward", "optimizer", "other"), 0.02)
    for side in (before, after):
        side.launches[-1].phases_steady = dict(step)
    after.launches[-1].phases_steady["data"] = 0.05
    after.launches[-1].median_step_time_s = after.launches[-1].mean_step_time_s = 0.13
    found = compare_to_baseline(after, before)
    assert found.verdict == "inconclusive"
    top = found.diagnosis.top_suspect
    assert top is not None
    assert top.category == "dataloader"
    assert "Likely cause" not in found.first_line
    assert "Possible cause, if it is worse" in render(found, "text")


def test_a_run_that_failed_is_explained_by_what_its_look_and_config_tell() -> None:
    before, after = sides()
    after.status, after.reason = "failed", "stopped at step 2 by gradient_explosion (critical)"
    after = changed(
        after,
        (("config", "learning_rate"), 5.0),
        ((*TRAJECTORY, "learning_rates"), [5.0] * len(LOSSES)),
    )
    after.alerts = [Alert("critical", "gradient", "gradient_explosion", "norm 103", 2).as_dict()]
    found = compare_to_baseline(after, before)
    assert found.verdict == "error"
    assert not found.checks
    top = found.diagnosis.top_suspect
    assert top is not None
    assert top.category == "optimizer"
    assert any("gradient_explosion at step 2" in item.message for item in top.evidence)
    after.exact = {}
    top = compare_to_baseline(after, before).diagnosis.top_suspect
    assert top is not None
    assert top.category == "optimizer", "the config alone"


def with_keys(run: RunRecord, **keys: Any) -> RunRecord:
    return altered(run, "config", to={**run.config, **keys})


KEYS = {"dataset_size": 64, "max_length": 96, "learning_rate": 1e-3}


def test_all_changed_keys_are_named_with_their_values() -> None:
    before, after = sides()
    found = compare_to_baseline(with_keys(after, **KEYS), before, gates=())
    (difference,) = found.differences
    assert all(
        f"{key} {shown(before.config[key])} -> {KEYS[key]}" in difference.detail for key in KEYS
    )


def test_the_key_that_costs_memory_comes_first_where_memory_grew() -> None:
    before, after = sides()
    after = with_keys(after, **KEYS)
    after.perf.max_mem_mb = 1.5 * (before.perf.max_mem_mb or 0)
    limits = Thresholds(max_mem_increase_mb=1)
    found = compare_to_baseline(after, before, limits, gates=("max_memory",))
    assert found.check("max_memory").status == "fail"
    assert found.config_changes[0].key == "max_length"
    assert found.differences[0].signal == "max_length"
    assert found.places.ran[0].name == "max_length"


def test_the_key_of_what_was_learned_comes_first() -> None:
    before, after = sides()
    rates = [2 * (rate or 0) for rate in after.exact["trajectory"]["learning_rates"]]
    after = altered(with_keys(after, **KEYS), "exact", "trajectory", "learning_rates", to=rates)
    found = compare_to_baseline(after, before, gates=())
    assert found.check("first_update").status == "changed"
    assert [one.name for one in found.places.ran] == ["learning_rate", "dataset_size", "max_length"]
