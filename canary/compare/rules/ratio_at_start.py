"""The policy ratio and the KL before the first update."""

from __future__ import annotations

import math
from collections.abc import Mapping

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.exact.tolerances import arithmetic_of
from canary.compare.rules.facts import logged, starts_at_reference
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.exact import Series
from canary.record.types import RunRecord

KL_AT_START = 1e-5
RATIO_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Of the policy ratio from 1 before the first update: log-probabilities of equal parameters differ
only by the order of additions."""


def judge(record: RunRecord) -> Answer:
    """Online RL starts with nothing clipped and KL 0. With a recorded `ratio_deviation`, the first
    update of every step must start at ratio 1."""
    if not is_rollout(record):
        return only_for("online RL")
    rl = logged(record)
    kl = (rl.get("kl") or [None])[0]
    if any(value is not None for value in rl.get("ratio_deviation", ())):
        found = _every_step(record, rl)
        return found if found.is_against else _kl(record, kl) or found
    clipped = [v[0] for k, v in rl.items() if k.startswith("clip_ratio") and v and v[0] is not None]
    if not clipped and kl is None:
        return not_asked("neither clip ratio nor KL was recorded")
    off = [v for v in clipped if v != 0]
    words = f"{max(off, default=0.0):.3g} of the policy ratios are clipped in step 1"
    return _kl(record, kl) or answer(bool(off), words, size=len(off))


def _kl(record: RunRecord, kl: float | None) -> Answer | None:
    if kl is None or not starts_at_reference(record) or abs(kl) <= KL_AT_START:
        return None
    words = f"KL is {kl:.3g} before the first update, expected 0"
    return answer(True, words, size=float(kl), value=kl)


def _every_step(record: RunRecord, rl: Mapping[str, Series]) -> Answer:
    """PPO starts each step's updates at the policy that sampled (Schulman et al. 2017, eq. 6), and
    its training at the reference model."""
    deviations = [float(v) for v in rl["ratio_deviation"] if v is not None]
    worst = max(deviations, key=lambda value: value if value == value else math.inf)
    words = f"policy ratios differ from 1 by up to {worst:.3g}"
    broken = not worst <= RATIO_TOLERANCE.get(arithmetic_of(record), 1e-4)
    if broken:
        words += " before the first update of a step"
    return answer(broken, words, size=worst, value=worst)


RULE = Rule(
    "starts_at_ratio_one",
    "training starts at ratio 1 and KL 0",
    "online RL that logs its ratio, or its KL with a reference that equals the policy",
    "compute old and new log-probabilities alike: temperature, mask, dropout, dtype",
    "https://arxiv.org/abs/1707.06347",
    judge,
)
