"""Learning rates above 0."""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.rules.facts import argument, whole_number
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.types import RunRecord

WARM_UPS = ("warmup_steps", "warmup_ratio")
"""Trainer arguments: warm-up steps, or their share of all steps."""


def judge(record: RunRecord) -> Answer:
    """The learning rate is positive, except in the first steps of a warm-up and the last step."""
    recorded = record.exact.get("trajectory", {}).get("learning_rates", [])
    if all(rate is None for rate in recorded):
        return not_asked("learning rates were not recorded")
    rates = [rate or 0.0 for rate in recorded]
    last = whole_number(record, "max_steps")
    first = next((place for place, rate in enumerate(rates) if rate > 0), len(rates))
    warm_up = _warms_up(record, rates[first:])
    zero = [
        step
        for step, rate in enumerate(rates, start=1)
        if not rate > 0 and not (warm_up and step <= first) and step != last
    ]
    doubt = "only the first steps: is this a warm-up?" if zero and zero[-1] <= first else ""
    return answer(
        bool(zero),
        f"{len(zero)} step{'' if len(zero) == 1 else 's'} with learning rate 0",
        size=len(zero),
        items=[f"step {step}" for step in zero],
        place=f"step {zero[0]}" if zero else "",
        doubt=doubt if first < len(rates) else "",
    )


def _warms_up(record: RunRecord, rates: Sequence[float]) -> bool:
    """Whether the config sets a warm-up, or the rates rise after the zeros at the start."""
    settings = (record.config.get("warmup_steps"), *(argument(record, key, 0) for key in WARM_UPS))
    configured = any(isinstance(value, int | float) and value > 0 for value in settings)
    return bool(rates) and (configured or (len(rates) > 1 and rates[1] > rates[0]))


RULE = Rule(
    "learning_rate_positive",
    "learning rates are positive",
    "the steps are neither a warm-up nor the last one",
    "look at the scheduler: its length, and how often it steps",
    "https://github.com/huggingface/accelerate/issues/2926",
    judge,
)
