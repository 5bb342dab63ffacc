"""How long a training is: one that ends within the look is not as long as one that goes on."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import Distribution, RunRecord
from tests.unit.comparing import altered, record, trained

LOOK = 12


def looked(steps: int, number: int = 0, **config: Any) -> RunRecord:
    """A run that ended after so many steps, at the latest with its look."""
    made = trained(record(number), steps)
    exact: Any = made.exact
    exact["steps"] = steps
    exact["batches"] = [exact["batches"][0]] * steps
    for name in ("losses", "grad_norms", "learning_rates"):
        exact["trajectory"][name] = [0.5] * steps
    exact["trajectory"]["rl"] = {}
    made.config.update({"exact": True, "look_steps": LOOK, "max_steps": None} | config)
    made.stability.loss_values = [0.5] * steps
    made.perf.step_time = Distribution()
    return made


def whole(steps: int, number: int = 0, max_steps: int | None = None) -> RunRecord:
    """A run that went on after its look."""
    return altered(trained(record(number), steps), "config", "max_steps", to=max_steps)


def compared(was: RunRecord, now: RunRecord) -> Comparison:
    return compare_to_baseline(now, was)


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (7, 12, "the training goes on after step 7, the baseline's ends there"),
        (7, 4, "the training ends after 4 steps, the baseline's after 7"),
        (12, 7, "the training ends after 7 steps, the baseline's goes on"),
        (4, 7, "the training ends after 7 steps, the baseline's after 4"),
    ],
)
def test_a_training_that_ends_within_the_look_has_another_length(
    was: int, now: int, words: str
) -> None:
    found = compared(looked(was), looked(now, 1))
    assert found.verdict == "changed"
    assert found.first_line == f"Changed: {words}."
    assert found.check("trajectory").message == words
    assert "look_steps" not in " ".join(check.message for check in found.checks)
    (difference,) = [one for one in found.differences if one.learned]
    assert difference.step == min(was, now) + 1


def test_trainings_of_the_same_length_learn_the_same() -> None:
    for steps in (7, 12):
        assert compared(looked(steps), looked(steps, 1)).verdict == "pass"


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (looked(12), looked(7, 1, look_steps=7)),
        (looked(12), looked(7, 1, max_steps=7)),
        (looked(7, look_steps=7), looked(12, 1)),
        (looked(7), looked(5, 1, look_steps=5)),
        (looked(12), looked(15, 1, look_steps=20)),
        (looked(7), looked(7, 1, look_steps=7)),
    ],
)
def test_a_look_that_the_canary_ended_shows_no_length(was: RunRecord, now: RunRecord) -> None:
    found = compared(was, now)
    assert found.verdict in ("pass", "inconclusive")
    if now.exact["steps"] < was.exact["steps"]:
        assert "(look_steps)" in found.first_line


def test_a_loss_that_differs_before_the_end_comes_first() -> None:
    now = looked(12, 1)
    now.exact["trajectory"]["losses"][3] = 0.7
    found = compared(looked(7), now)
    assert found.first_line.startswith("Changed: the loss differs from step 4")


def test_a_training_without_a_seed_still_has_a_length() -> None:
    was = [altered(looked(7, n), "exact", "model", "parameters_sha256", to=f"{n}") for n in (1, 2)]
    found = compare_to_baseline(looked(12, 3), was, paired=True)
    assert found.first_line == (
        "Changed: the training goes on after step 7, the baseline's ends there."
    )


def test_a_length_that_repeated_runs_do_not_share_is_not_judged() -> None:
    """Such as that of a loop that ends after a time."""
    found = compare_to_baseline(looked(12, 3), [looked(5, 1), looked(7, 2)], paired=True)
    assert found.verdict == "inconclusive"


def test_a_whole_training_that_is_longer_learns_something_else() -> None:
    found = compared(whole(40), whole(60, 1))
    assert found.verdict == "changed"
    assert found.first_line == "Changed: the training ends after 60 steps, the baseline's after 40."


def test_lost_steps_of_whole_trainings_have_a_check_of_their_own() -> None:
    found = compared(whole(100), whole(30, 1))
    assert found.check("steps_trained").status == "fail"
    assert found.check("trajectory").status == "pass"


@pytest.mark.parametrize(("was", "now"), [(40, 60), (None, 60), (40, None)])
def test_a_whole_training_that_the_canary_ended_shows_no_length(
    was: int | None, now: int | None
) -> None:
    found = compared(whole(was or 40, 0, was), whole(now or 60, 1, now))
    expected = "changed" if was is None else "pass"
    assert found.check("trajectory").status == expected


def test_a_run_that_failed_has_no_length() -> None:
    failed = looked(7, 1).model_copy(update={"status": "failed", "reason": "it broke"})
    found = compared(looked(12), failed)
    assert not any("the training ends" in one.detail for one in found.differences)


def test_calls_of_looks_and_trainings_of_other_lengths_are_not_compared() -> None:
    was, now = looked(10), looked(12, 1)
    for side, calls in ((was, 10), (now, 30)):
        side.exact["calls"] = {"tokenizer_calls": calls}
    assert compared(was, now).check("tokenizer_calls").status == "skip"
    was, now = whole(20), whole(40, 1)
    for side, calls in ((was, 20), (now, 40)):
        side.exact["calls"] = {"tokenizer_calls": 12}
        side.io["tokenizer_calls"] = calls
    assert compared(was, now).check("tokenizer_calls").status == "pass"
