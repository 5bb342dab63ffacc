"""Imported records have no exact lane: what decides then, and what the first line says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.rules import answers
from canary.compare.stats import compare_to_baseline
from canary.config.metric_gates import MetricGate
from canary.record.curves import Curve, Source
from canary.record.types import RunRecord, Stability
from canary.report.render import render
from tests.unit.comparing import altered, crashed, history, record
from tests.unit.gating import gate, imported, scattered, with_curve

GATE = gate("reward", limit="5%")
NOT_RECORDED = "exact signals were not recorded"


def rewarded(number: int, mean: float = 1.0) -> RunRecord:
    return with_curve(record(number), [mean] * 20, "reward")


def stored(*, timed: bool = True, as_import: bool = True) -> list[RunRecord]:
    runs = [
        with_curve(run, [mean] * 20, "reward")
        for run, mean in zip(history(0.01, 10), scattered(10, 1.0, 0.01), strict=True)
    ]
    return [imported(run, timed=timed) for run in runs] if as_import else runs


def compared(
    current: RunRecord, baseline: list[RunRecord], *gates: MetricGate, **more: Any
) -> Comparison:
    found = compare_to_baseline(current, baseline, metrics=gates, **more)
    for form in ("text", "markdown", "json"):
        assert render(found, form)
    return found


@pytest.mark.parametrize("timed", [True, False])
def test_a_gate_that_passes_makes_a_pass_that_says_what_was_not_recorded(timed: bool) -> None:
    found = compared(imported(rewarded(100), timed=timed), stored(timed=timed), GATE)
    assert found.verdict == "pass"
    assert found.passed
    assert NOT_RECORDED in found.first_line
    assert "1 gate of `metrics`" in found.first_line


def test_a_gate_that_fails_is_a_regression() -> None:
    found = compared(imported(rewarded(100, 0.8), timed=False), stored(timed=False), GATE)
    assert found.verdict == "regression"


def test_speed_alone_can_decide() -> None:
    found = compared(imported(rewarded(100)), stored())
    assert found.verdict == "pass"
    assert "in speed alone" in found.first_line
    slow = compared(imported(with_curve(record(100, 0.2), [1.0] * 20, "reward")), stored())
    assert slow.verdict == "regression"


def test_without_a_gate_and_without_speed_nothing_is_decided() -> None:
    found = compared(imported(rewarded(100), timed=False), stored(timed=False))
    assert found.verdict == "inconclusive"
    assert not found.passed
    assert "without step times" in found.first_line
    assert NOT_RECORDED in found.first_line


def test_a_gate_that_is_undecided_is_no_pass() -> None:
    undecided = gate("reward", statistic="at", step=999, limit=1.0)
    found = compared(imported(rewarded(100)), stored(), GATE, undecided)
    assert found.verdict == "inconclusive"
    assert not found.passed


@pytest.mark.parametrize("baseline_imported", [True, False])
def test_one_imported_side_is_compared_in_what_both_have(baseline_imported: bool) -> None:
    now = rewarded(100)
    now = now if baseline_imported else imported(now)
    before = stored(as_import=baseline_imported)
    found = compared(now, before, GATE)
    assert any("only what both have is compared" in note for note in found.notes)
    assert found.check("metrics.reward.mean").status == "pass"
    # A run cannot leave the exact lane out by calling itself imported.
    assert found.verdict == ("pass" if baseline_imported else "inconclusive")
    assert found.passed is baseline_imported
    # The trainers have other names then, which says nothing.
    renamed = altered(now, "config", "training_type", to="import")
    assert compared(renamed, before, GATE).verdict == found.verdict


def test_speed_that_only_the_baseline_has_is_no_pass() -> None:
    found = compared(imported(rewarded(100), timed=False), stored(timed=True), GATE)
    assert found.verdict == "inconclusive"
    assert not found.passed


def test_another_machine_is_an_error_and_an_unknown_one_only_leaves_speed_out() -> None:
    now = imported(rewarded(100))
    device = {"type": "cuda", "name": "Other 40GB"}
    other = now.model_copy(update={"env": now.env | {"device": device}})
    assert compared(other, stored(), GATE).verdict == "error"
    unknown = now.model_copy(update={"env": {}})
    found = compared(unknown, stored(), GATE)
    assert "is not known" in found.check("step_time_median").message
    assert found.check("metrics.reward.mean").status == "pass"
    assert (found.verdict, found.passed) == ("inconclusive", False), "it may hide its machine"


def unknown_machine(run: RunRecord) -> RunRecord:
    return run.model_copy(update={"env": {}})


def test_two_unknown_machines_are_not_taken_for_one() -> None:
    """A slower step may be another machine's: only a gate that a person wrote judges it."""
    slow = [0.2] * 20
    before = [unknown_machine(with_curve(run, [0.1] * 20, "step_time_s")) for run in stored()]
    now = unknown_machine(imported(with_curve(record(100, 0.2), slow, "step_time_s")))
    found = compared(now, before)
    assert found.verdict == "inconclusive"
    assert not found.passed
    assert "is not known, so speed is compared only by gates you wrote" in found.first_line
    assert {check.name for check in found.checks if check.failed} == set()
    written = gate("step_time_s", statistic="median", limit="10%")
    assert compared(now, before, written).verdict == "regression"


def test_two_frameworks_are_not_compared() -> None:
    now = imported(rewarded(100))
    source = Source(format="jsonl", preset="nemo_rl")
    found = compared(now.model_copy(update={"source": source}), stored(), GATE)
    assert found.verdict == "error"
    assert "two frameworks" in found.first_line


def test_an_imported_run_that_ended_early_is_no_pass() -> None:
    found = compared(imported(crashed(rewarded(100))), stored(), GATE)
    assert found.verdict == "error"


def test_an_imported_run_without_any_metric_is_an_error() -> None:
    bare = imported(record(100), timed=False)
    assert compared(bare, stored(timed=False), GATE).verdict == "regression"
    empty = bare.model_copy(update={"rl": {}, "stability": Stability()})
    found = compared(empty, stored(timed=False), GATE)
    assert found.verdict == "error"
    assert "no metric" in found.first_line


def test_a_first_imported_run_is_judged_by_numbers() -> None:
    low = gate("reward", limit=2.0)
    assert compared(imported(rewarded(100)), [], low, history=True).verdict == "regression"
    assert compared(imported(rewarded(100)), [], GATE, history=True).verdict == "no-baseline"


def test_nan_losses_of_an_imported_run_still_fail() -> None:
    broken = altered(imported(rewarded(100)), "stability", "nan_steps", to=3)
    assert compared(broken, stored(), GATE).verdict == "regression"


def test_a_changed_setting_is_the_likely_cause_but_not_a_sure_one() -> None:
    now = altered(imported(rewarded(100, 0.8)), "config", "learning_rate", to=0.5)
    found = compared(now, stored(), GATE)
    top = found.diagnosis.top_suspect
    assert top is not None
    assert top.category == "optimizer"
    assert top.confidence <= 0.6


def test_a_preset_file_that_changed_is_an_error() -> None:
    def read_by(run: RunRecord, digest: str) -> RunRecord:
        return altered(run, "config", "preset_sha256", to=digest)

    before = [read_by(run, "a" * 64) for run in stored()]
    assert compared(read_by(imported(rewarded(100)), "a" * 64), before, GATE).verdict == "pass"
    for now in (read_by(imported(rewarded(100)), "b" * 64), imported(rewarded(100))):
        found = compared(now, before, GATE)
        assert found.verdict == "error"
        assert "the preset's file changed" in found.first_line


@pytest.mark.parametrize("imported_is_current", [True, False])
def test_what_an_import_does_not_record_is_no_change(imported_is_current: bool) -> None:
    watched = record(1)
    watched.config.update(command=["python", "train.py"], max_steps=40, training_type="exec")
    watched = altered(watched, "env", "packages", to={"torch": "2.13.0"})
    bare = imported(rewarded(2))
    bare.config.clear()
    bare.config.update(name="jsonl", training_type="trl", **{"import": {"preset": "trl"}})
    bare = bare.model_copy(update={"env": {}, "git": {"sha": None}})
    watched = with_curve(watched, [1.0] * 20, "reward")
    sides = (bare, [watched]) if imported_is_current else (watched, [bare])
    found = compared(sides[0], sides[1], GATE)
    assert found.first_difference is None
    assert [change.key for change in found.config_changes] == ["name"]
    assert found.environment_changes == ()
    said = render(found, "text")
    assert "not set" not in said
    assert "First difference" not in said


def test_what_both_imports_record_is_still_compared() -> None:
    now = altered(imported(rewarded(100)), "env", "packages", to={"torch": "2.14.0"})
    before = [altered(run, "env", "packages", to={"torch": "2.13.0"}) for run in stored()]
    found = compared(now, before, GATE)
    assert [change.key for change in found.environment_changes] == ["packages.torch"]


@pytest.mark.parametrize(("rate", "named"), [(1e-5, True), (1e-3, False), (1e-3 + 1e-10, False)])
def test_another_learning_rate_of_an_import_is_named(rate: float, named: bool) -> None:
    now = with_curve(imported(rewarded(100, 0.8)), [rate] * 20, "learning_rate")
    before = [with_curve(run, [1e-3] * 20, "learning_rate") for run in stored()]
    found = compared(now, before, GATE)
    assert found.verdict == "regression"
    assert [change.key for change in found.config_changes] == ["learning_rate"] * named
    assert ("learning_rate 0.001 -> 1e-05" in render(found, "text")) is named


@pytest.mark.parametrize(
    ("name", "values", "rule", "status"),
    [
        ("reward", [0.0] * 12, "reward_varies", "broken"),
        ("reward", [0.0] * 11 + [0.1], "reward_varies", "holds"),
        ("reward", [0.0] * 4, "reward_varies", "not asked"),
        ("learning_rate", [0.0] * 12, "learning_rate_positive", "broken"),
        ("learning_rate", [*[1e-6] * 11, 0.0], "learning_rate_positive", "holds"),
        ("loss", [1.0] * 12, "raw_loss_finite", "holds"),
        ("loss", [1.0] * 11 + [math.nan], "raw_loss_finite", "broken"),
    ],
)
def test_a_log_answers_the_rules_of_what_it_has(
    name: str, values: list[float], rule: str, status: str
) -> None:
    run = imported(with_curve(record(1), values, name))
    found = {one.id: said for one, said in answers(altered(run, "rl", to={}))}
    assert found[rule].status == status
    assert found["optimizer_holds_trainable"].inapplicable


def test_a_rule_names_the_step_that_the_log_has() -> None:
    curve = Curve(steps=[10, 20, 30], values=[1.0, math.nan, 1.0])
    run = imported(record(1).model_copy(update={"curves": {"loss": curve}}))
    found = {one.id: said for one, said in answers(run)}
    assert found["raw_loss_finite"].place == "loss of step 20"
