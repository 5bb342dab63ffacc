"""The mismatch that a framework logs: one beyond rounding, or one that grows, is broken."""

from __future__ import annotations

import pytest

from canary.compare.rules.sampler_logprobs import DIFFERENCE, sampler_logprobs
from canary.record.curves import Curve, Source
from canary.record.types import RunRecord
from tests.unit.comparing import example

STEADY = [0.010, 0.012, 0.009, 0.011, 0.010, 0.013]
ISSUE_5312 = [0.010, 0.010, 0.201, 0.230, 0.250, 0.240]


def imported(
    values: list[float], name: str = "mismatch", source: str = "x", **others: list[float]
) -> RunRecord:
    curves = {
        one: Curve(steps=list(range(1, len(points) + 1)), values=points)
        for one, points in {name: values, **others}.items()
    }
    return example("grpo").model_copy(
        update={"curves": curves, "source": Source(format="jsonl", names={name: source})}
    )


@pytest.mark.parametrize(
    ("values", "name", "source", "status"),
    [
        (STEADY, "mismatch", "x", "holds"),
        (ISSUE_5312, "mismatch", "x", "broken"),
        ([0.010, 0.201, *STEADY], "mismatch", "x", "holds"),
        ([float("nan"), 0.1], "mismatch", "x", "broken"),
        ([0.01, float("nan"), float("nan")], "mismatch", "x", "broken"),
        ([1.01, 1.02, 1.01], "mismatch", "train/token_mult_prob_error", "holds"),
        ([1.01, 1.3, 1.4], "mismatch", "train/token_mult_prob_error", "broken"),
        ([1e-4, 2e-4, 1e-4], "mismatch_kl", "x", "holds"),
    ],
)
def test_a_logged_mismatch(values: list[float], name: str, source: str, status: str) -> None:
    found = sampler_logprobs.judge(imported(values, name, source))
    assert found.status == status, found


def test_trl_in_a_look() -> None:
    record = example("grpo")
    exact = {**record.exact, "trajectory": {"rl": {DIFFERENCE: ISSUE_5312}}}
    found = sampler_logprobs.judge(record.model_copy(update={"exact": exact}))
    assert found.status == "broken"
    assert found.place == "step 3"


def test_a_framework_that_samples_late_on_purpose_is_not_judged() -> None:
    found = sampler_logprobs.judge(imported(ISSUE_5312, staleness=[0.0, 1.0, 1.0]))
    assert found.status == "not asked"
    assert not found.inapplicable


def test_a_training_without_such_a_metric_is_another_one() -> None:
    assert sampler_logprobs.judge(example("sft")).inapplicable
