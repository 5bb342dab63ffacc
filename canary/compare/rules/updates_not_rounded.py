"""Updates that low precision rounds away."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, shown, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.facts import FollowedOptimizer
from canary.record.types import RunRecord

MOST_LOST = 0.5
"""From this share on, most of the training is lost."""
FEWEST = 100
"""Fewest sampled elements of all updates that say something."""


def judge(record: RunRecord) -> Answer:
    """An update of Adam is near the learning rate, so only rounding leaves an element equal."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    low = [one for one in seen.get("optimizers", []) if "rounding" in one]
    if not low:
        return only_for("parameters in bfloat16 or float16 that an Adam of torch updates")
    one = max(low, key=lambda found: found["rounding"]["asked"])
    rounding, rates = one["rounding"], [rate for rate in one.get("rates", []) if rate > 0]
    if not rates:
        return not_asked("the learning rate of every update is 0")
    if rates[-1] > rates[-2:][0] or 2 * sum(2 * rate >= max(rates) for rate in rates) < len(rates):
        return not_asked("the learning rate rises in most of the look")
    if rounding["asked"] < FEWEST:
        return not_asked("too few sampled elements had a gradient")
    return _answer(one, rounding["lost"] / rounding["asked"])


def _answer(one: FollowedOptimizer, lost: float) -> Answer:
    rounding = one["rounding"]
    still, dtype = rounding["still"], rounding["dtype"]
    words = (
        f"{lost:.0%} of sampled updates in {dtype} changed nothing at learning rate "
        f"{max(one['rates']):g}"
    )
    if still:
        names = shown(rounding["still_names"], still)
        words += f"; no update changed {still} of {rounding['tensors']} sampled tensors ({names})"
    most = lost >= MOST_LOST
    return answer(
        bool(still) or most,
        words,
        size=lost,
        value=lost,
        place=shown(rounding["still_names"], 1) if still else "",
        doubt="" if still and most else "the rest of the updates arrives",
    )


RULE = Rule(
    "updates_not_rounded",
    "updates are large enough for the precision of the parameters",
    "parameters in bfloat16 or float16 that an Adam of torch updates in place, and a learning rate "
    "that does not rise",
    "keep the parameters in float32 and use autocast, or raise the learning rate",
    "https://github.com/vllm-project/speculators/pull/765",
    judge,
)
