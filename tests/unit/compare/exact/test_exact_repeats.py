"""Signals that differ between equal runs leave the exact lane by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, committed, noise_model, plain, record

LOSS = ("exact", "first_loss", "loss")
FIRST = float(plain(record())["first_loss"]["loss"])
FLOPS = int(record().exact["work"]["flops"])
SHA = "a" * 40


def run(number: int, relative: float = 0.0, **rest: Any) -> RunRecord:
    """A run of one commit whose first loss is off by so much."""
    return committed(altered(record(number), *LOSS, to=FIRST * (1 + relative)), **rest)


def compared(current: RunRecord, *baseline: RunRecord, **rest: Any) -> Comparison:
    return compare_to_baseline(current, baseline, **rest)


def loss_status(found: Comparison) -> str:
    return found.check("first_loss").status


def test_a_signal_that_equal_runs_do_not_repeat_is_not_judged() -> None:
    found = compared(run(9, 1e-4, sha="b" * 40), run(0, 1e-4), run(1), run(2))
    assert loss_status(found) == "skip"
    (note,) = found.notes
    assert note.startswith("first_loss.loss: not judged, differs between repeated runs")


def test_a_difference_far_larger_than_that_of_equal_runs_is_a_change() -> None:
    assert loss_status(compared(run(9, 2e-4), run(0, 1e-4), run(1))) == "skip"
    assert loss_status(compared(run(9, 4e-4), run(0, 1e-4), run(1))) == "changed"


def test_equal_runs_that_differ_by_more_than_arithmetic_decide_nothing() -> None:
    """One odd run among the stored ones must not excuse every later one."""
    found = compared(run(9, 5e-2, sha="b" * 40), run(0, 5e-2), run(1), run(2))
    assert loss_status(found) == "inconclusive"
    assert found.verdict != "pass"


@pytest.mark.parametrize(
    "other",
    [
        committed(run(0, 1e-4), "c" * 40),
        committed(run(0, 1e-4), SHA, dirty=True),
        altered(run(0, 1e-4), "config", "learning_rate", to=1.0),
        altered(run(0, 1e-4), "env", "packages", "trl", to="0.1"),
        altered(run(0, 1e-4), "git", to={"sha": None}),
    ],
    ids=["other commit", "dirty", "other config", "other packages", "no commit"],
)
def test_runs_that_are_not_equal_excuse_nothing(other: RunRecord) -> None:
    assert loss_status(compared(run(9, 1e-4), other, run(1))) == "changed"


def test_equal_runs_of_a_dirty_tree_excuse_nothing() -> None:
    baseline = run(0, 1e-4, dirty=True), run(1, dirty=True)
    assert loss_status(compared(run(9, 1e-4), *baseline)) == "changed"
    assert loss_status(compared(run(9, 1e-4), run(0, 1e-4), run(1, dirty=True))) == "changed"


def test_runs_that_differ_in_cosmetic_keys_are_equal() -> None:
    other = altered(run(0, 1e-4), "config", "description", to="again")
    assert loss_status(compared(run(9, 1e-4), other, run(1))) == "skip"


def test_a_noise_model_names_inexact_signals_too() -> None:
    noise = noise_model(inexact={"first_loss.loss": 1e-4})
    assert loss_status(compared(run(9, 2e-4), run(1), noise=noise)) == "skip"
    assert loss_status(compared(run(9, 4e-4), run(1), noise=noise)) == "changed"
    assert loss_status(compared(run(9, 2e-4), run(1), noise=noise_model())) == "changed"
    other = noise_model(inexact={"trajectory.loss": 1.0})
    assert loss_status(compared(run(9, 2e-4), run(1), noise=other)) == "changed"


def test_a_hash_that_equal_runs_do_not_repeat_is_not_judged() -> None:
    path = ("exact", "batches", 3, 0, "sha256")
    baseline = [committed(altered(record(n), *path, to=f"{n:064d}")) for n in (1, 2)]
    found = compared(committed(altered(record(9), *path, to="9" * 64), "b" * 40), *baseline)
    assert found.check("batches").status == "skip"
    assert found.first_difference is None


@pytest.mark.parametrize(
    ("check", "path", "values"),
    [
        ("flops", ("exact", "work", "flops"), (1.5 * FLOPS, FLOPS)),
        ("recompiles", ("exact", "work", "recompiles"), (1, 0)),
        ("dataset_maps", ("io", "dataset_maps_executed"), (4, 0)),
    ],
)
def test_work_that_equal_runs_do_not_repeat_is_not_judged(
    check: str, path: tuple[str, ...], values: tuple[float, float]
) -> None:
    baseline = [committed(altered(record(n), *path, to=value)) for n, value in enumerate(values)]
    found = compared(altered(committed(record(9)), *path, to=values[0]), *baseline)
    assert found.check(check).status != "fail"


def test_a_current_side_that_does_not_repeat_itself_is_told() -> None:
    baseline = run(0), run(1)
    found = compare_to_baseline([run(8, 1e-4, sha="b" * 40), run(9, sha="b" * 40)], baseline)
    check = found.check("repeatability")
    assert check.status == "warn"
    assert "first_loss.loss" in check.message
    steady = compare_to_baseline([run(8), run(9)], baseline)
    assert "repeatability" not in [check.name for check in steady.checks]


@pytest.mark.parametrize("stage", [stage for stage in LEARNED_STAGES if stage != "rollout"])
def test_a_stage_that_neither_side_recorded_is_not_passed(stage: str) -> None:
    """Nothing was compared, so nothing can be equal."""

    def bare(whole: RunRecord) -> RunRecord:
        without = altered(whole, "exact", to={"steps": 12})
        return altered(without, "stability", "loss_values", to=[])

    found = compared(bare(record(9)), bare(record(0)), bare(record(1)), bare(record(2)))
    assert found.check(stage).status == "skip"


def test_a_failed_check_says_how_much_even_where_the_totals_agree() -> None:
    """Two module groups swapped leave the total as it was."""
    path = ("exact", "first_gradient", "groups")
    groups = record().exact["first_gradient"]["groups"]
    names = list(groups)[:2]
    swapped = groups | {names[0]: groups[names[1]], names[1]: groups[names[0]]}
    check = compared(altered(record(9), *path, to=swapped), record(0)).check("first_gradient")
    assert check.status == "changed"
    assert check.delta
