"""Failures specific to RLHF: KL, entropy and clipping. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator
from itertools import islice

from canary.record.alert import Alert
from canary.training.anomaly.detectors.common import Episodes, alert, split
from canary.training.anomaly.observation import Observation

KL = 1.0
WINDOW = 100
LAST = 5
KNOWN = 10
SOON = 3
"""Steps before limits apply that compare only with the first steps."""
FIRST = 2
"""Steps that give the entropy of the start; only two, because a run may break that early."""
AT_REFERENCE = 0.05
"""A run began at its reference model if its first KL is within this share of the limit."""
FAR = 5.0
"""A run that began at its reference model is too far away at this many times the limit. Runs that
learn (PPO, GRPO, RLOO) stay below 0.6 nats per token; with a reward model alone, below 3 in 60
steps. Broken runs reach 5 to 15."""
RUNAWAY = 5.0
TOKENS_IN_A_SEQUENCE = 10.0
"""A KL summed over a completion may be this many times the limit of the mean per token."""


class RLHFDetector:
    """Compares medians of the last few steps with limits and with earlier steps of the run.

    Args:
        kl_limit: the KL blew up above it. By default its mean per token must be above 1.0 and five
            times its past. In a run that began at its reference model, 5.0 is enough.
        entropy_floor: entropy collapsed below this share of the entropy of the first two steps.
        clip_limit: above this share of clipped tokens, updates no longer follow the objective.
    """

    def __init__(
        self, kl_limit: float | None = None, entropy_floor: float = 0.1, clip_limit: float = 0.5
    ) -> None:
        self._given_kl_limit = kl_limit
        self._kl_limit = kl_limit or KL
        self._entropy_floor = entropy_floor
        self._clip_limit = clip_limit
        self._kl: deque[float] = deque(maxlen=WINDOW)
        self._first_kl: float | None = None
        self._entropy: deque[float] = deque(maxlen=LAST)
        self._first_entropies: list[float] = []
        self._clip: deque[float] = deque(maxlen=KNOWN)
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one step."""
        self._episodes.next()
        yield from self._kl_blew_up(observation)
        yield from self._entropy_collapsed(observation)
        yield from self._clipping(observation)

    def _kl_blew_up(self, observation: Observation) -> Iterator[Alert]:
        kl = observation.kl
        if kl is None or math.isnan(kl):
            return
        self._kl.append(kl)
        allowed = self._kl_limit * (TOKENS_IN_A_SEQUENCE if observation.kl_of_sequence else 1.0)
        if self._first_kl is None:
            self._first_kl = kl
        if kl <= self._kl_limit and max(islice(reversed(self._kl), LAST)) <= self._kl_limit:
            return
        now, before = self._kl_now()
        limit = max(allowed, RUNAWAY * before)
        runaway = len(self._kl) >= KNOWN and now > limit
        began = abs(self._first_kl) <= AT_REFERENCE * allowed
        far = began and len(self._kl) >= SOON and now > FAR * allowed
        since = f"up from {before:.4g}"
        if far and not runaway:
            before, limit = self._first_kl, FAR * allowed
            since = f"up from {before:.4g} at the start"
        if self._given_kl_limit is not None:
            runaway = len(self._kl) >= SOON and now > self._given_kl_limit
            limit = self._given_kl_limit
        if self._episodes.is_new("kl", runaway or far):
            words = f"the policy drifts too far from the reference model: KL {now:.4g}, {since}"
            yield alert("kl_blowup", observation.step, words, now, limit, before=before)

    def _kl_now(self) -> tuple[float, float]:
        before, last = split(self._kl, LAST)
        return statistics.median(last or [0.0]), statistics.median(before or [0.0])

    def _entropy_collapsed(self, observation: Observation) -> Iterator[Alert]:
        entropy = observation.entropy
        if entropy is None or not math.isfinite(entropy):
            return
        self._entropy.append(entropy)
        if len(self._first_entropies) < FIRST:
            self._first_entropies.append(entropy)
        start = max(self._first_entropies)
        now = statistics.median(self._entropy)
        limit = self._entropy_floor * start
        enough = len(self._entropy) >= SOON
        if self._episodes.is_new("entropy", enough and start > 0 and now < limit):
            words = f"the policy's outputs hardly vary any more: entropy {now:.4g}, down from "
            words += f"{start:.4g} at the start"
            yield alert("entropy_collapse", observation.step, words, now, limit, start=start)

    def _clipping(self, observation: Observation) -> Iterator[Alert]:
        share = observation.clip_fraction
        if share is None or not math.isfinite(share):
            return
        self._clip.append(share)
        now = statistics.median(self._clip)
        full = len(self._clip) == KNOWN
        if self._episodes.is_new("clip", full and now > self._clip_limit):
            words = f"{100 * now:.3g}% of the tokens are clipped: the updates are too large, or "
            words += "the rollouts too old"
            kind, step = "clip_fraction_saturation", observation.step
            yield alert(kind, step, words, now, self._clip_limit)
