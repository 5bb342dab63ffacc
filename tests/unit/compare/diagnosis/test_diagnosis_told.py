"""What is told of a diagnosis: undecided, of a run that failed, and each fact once."""

from __future__ import annotations

import json

import pytest

from canary.anomaly import Alert
from canary.compare.stats import compare_to_baseline
from canary.report.render import render
from canary.report.story import story_of, story_text
from tests.unit.comparing import example
from tests.unit.diagnosing import CASES, LOSSES, TRAJECTORY, changed, diagnosed, sides


def test_between_runs_that_are_not_comparable_no_difference_is_a_cause() -> None:
    current, baseline = example("dpo"), example("sft")
    found = compare_to_baseline(current, baseline)
    assert found.first_line.startswith("Error: not comparable, two trainers")
    assert not found.diagnosis.suspects
    assert "Likely cause" not in render(found, "text")
    for form in ("text", "markdown"):
        assert "step time" not in render(found, form)
        assert "Metrics" not in story_text(story_of(found, [current], [baseline]), form, found)


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
    story = story_text(story_of(found, [after], [before]), "text", found)
    assert "It is not decided whether anything got worse" in story


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


def test_explains_json_has_numbers_with_units() -> None:
    found, _ = diagnosed("sft", *CASES["another learning rate"][2])
    before, after = sides()
    text = story_text(story_of(found, [after], [before]), "json", found)
    document = json.loads(text)
    assert document["verdict"] == "changed"
    assert isinstance(document["diagnosis"]["suspects"][0]["confidence"], float)
    rows = {row["name"]: row for row in document["metrics"]}
    assert rows["step time, mean"] == {
        "name": "step time, mean",
        "baseline": pytest.approx(100.0),
        "current": pytest.approx(100.0),
        "unit": "ms",
    }
