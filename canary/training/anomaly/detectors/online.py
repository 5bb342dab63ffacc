"""What goes wrong in RLHF: inaccurate reward predictions, changes in the distribution of rewards,
KL, entropy and clipping. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import islice
from typing import Any

from canary.training.anomaly.detectors.common import Shift, Watch, long_run, shift_of, split
from canary.training.anomaly.observation import Agreement, Observation

WINDOW = 200
RECENT = 20
PAST = 40
"""Steps needed before the recent ones, to compare with."""
EVERY = 5
"""Windows are checked once per this many steps: they hardly change in between."""
SURE = 8.0
CALLS = 10
SAMPLES = 32
"""Predictions needed to judge a single step."""
SPREAD = 2.0
"""The distribution has changed if the standard deviation grew by more than this factor."""
FLAT = 0.25
"""In a jump, unlike in learning, rewards before and after it move less than this share of it."""


class CalibrationDetector(Watch):
    """Checks calibration: 1 - mean absolute error / root mean square of the rewards. It is poor
    below `calibration_threshold`; a fall by more than `drift_threshold` is a drift."""

    def __init__(self, drift_threshold: float, calibration_threshold: float) -> None:
        super().__init__()
        self._drift = drift_threshold
        self._poor = calibration_threshold
        self._errors: deque[float] = deque(maxlen=WINDOW)
        self._squares: deque[float] = deque(maxlen=WINDOW)

    def check(self, observation: Observation) -> None:
        """Check the predictions of one step."""
        found = observation.agreement
        if found is None or not math.isfinite(found.error + found.square):
            return
        self._now += 1
        self._errors.append(found.error)
        self._squares.append(found.square)
        scale = math.sqrt(statistics.fmean(self._squares))
        if scale <= 0.0:
            return
        score = self._poor_score(found, scale)
        if score is not None:
            words = f"reward predictions are inaccurate: calibration {score:.3g}"
            more: dict[str, Any] = {"scale": scale, "steps": len(self._errors)}
            self.report("calibration_poor", words, score, self._poor, **more)
        if self._now % EVERY or len(self._errors) < PAST + RECENT:
            return
        shift = shift_of(*split(self._errors, RECENT))
        fall = shift.difference / scale
        if fall > self._drift and shift.sure(SURE):
            words = "reward predictions became less accurate: calibration fell from "
            words += f"{1 - shift.before / scale:.3g} to {1 - shift.after / scale:.3g}"
            self.report("calibration_drift", words, fall, self._drift, scale=scale)

    def _poor_score(self, found: Agreement, scale: float) -> float | None:
        """Return the calibration if it is surely too low: of this step, or of the recent ones."""
        if found.count >= SAMPLES:
            # In a single step, a common shift of all samples may be chance: count the rest.
            sure = found.centred_error - SURE * found.centred_std / math.sqrt(found.count)
            if 1 - sure / scale < self._poor:
                return 1 - found.error / scale
        if len(self._errors) >= CALLS and self._now % EVERY == 0:
            recent = list(self._errors)[-RECENT:]
            mean, variance, spread = long_run(recent)
            error = math.sqrt(min(spread / len(recent), variance))
            if 1 - (mean - SURE * error) / scale < self._poor:
                return 1 - mean / scale
        return None


class RewardDriftDetector(Watch):
    """Compares the recent rewards with earlier ones: the mean fell or jumped up, or the standard
    deviation grew. A mean that rises step by step is normal: the training works."""

    def __init__(self, drift_threshold: float) -> None:
        super().__init__()
        self._drift = drift_threshold
        self._means: deque[float] = deque(maxlen=WINDOW)
        self._spreads: deque[float] = deque(maxlen=WINDOW)

    def check(self, observation: Observation) -> None:
        """Check the rewards of one step."""
        rewards = observation.rewards
        if rewards is None or not math.isfinite(rewards.mean):
            return
        self._now += 1
        known = rewards.std is not None and math.isfinite(rewards.std)
        self._means.append(rewards.mean)
        self._spreads.append(rewards.std or 0.0 if known else 0.0)
        if self._now % EVERY or len(self._means) < PAST + RECENT:
            return
        pairs = zip(self._means, self._spreads, strict=True)
        scale = math.sqrt(statistics.fmean(mean**2 + spread**2 for mean, spread in pairs))
        if scale <= 0.0:
            return
        before, after = split(self._means, RECENT)
        mean, spread = shift_of(before, after), shift_of(*split(self._spreads, RECENT))
        relative = mean.difference / scale
        if (
            abs(relative) > self._drift
            and mean.sure(SURE)
            and (relative < 0 or _jumped(before, after, mean.difference))
        ):
            word = f"the mean reward {'jumped' if relative > 0 else 'fell'}"
            self._changed(word, mean, abs(relative), scale)
        elif spread.before > 0 and spread.after > SPREAD * spread.before and spread.sure(SURE):
            word = "the standard deviation of the rewards grew"
            self._changed(word, spread, spread.difference / scale, scale)

    def _changed(self, what: str, shift: Shift, value: float, scale: float) -> None:
        words = f"{what} from {shift.before:.4g} to {shift.after:.4g}"
        more: dict[str, Any] = {"before": shift.before, "after": shift.after, "scale": scale}
        self.report("reward_distribution_drift", words, value, self._drift, **more)


def _jumped(before: list[float], after: list[float], rise: float) -> bool:
    half = RECENT // 2
    mean = statistics.fmean
    late = abs(mean(after[half:]) - mean(after[:half]))
    early = abs(mean(before[-half:]) - mean(before))
    return max(late, early) < FLAT * rise


KL = 1.0
KL_WINDOW = 100
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


class RLHFDetector(Watch):
    """Compares medians of the last few steps with limits and with earlier steps of the run.

    Args:
        kl_limit: the KL blew up above it. By default its mean per token must be above 1.0 and five
            times its past. In a run that began at its reference model, 5.0 is enough.
        entropy_floor: entropy collapsed below this share of the entropy of the first two steps.
        clip_limit: above this share of clipped tokens, updates no longer follow the objective.
    """

    def __init__(self, kl_limit: float | None, entropy_floor: float, clip_limit: float) -> None:
        super().__init__()
        self._given_kl_limit = kl_limit
        self._kl_limit = kl_limit or KL
        self._entropy_floor = entropy_floor
        self._clip_limit = clip_limit
        self._kl: deque[float] = deque(maxlen=KL_WINDOW)
        self._first_kl: float | None = None
        self._entropy: deque[float] = deque(maxlen=LAST)
        self._first_entropies: list[float] = []
        self._clip: deque[float] = deque(maxlen=KNOWN)

    def check(self, observation: Observation) -> None:
        """Check one step."""
        self._now += 1
        if observation.kl is not None and not math.isnan(observation.kl):
            self._kl_blew_up(observation.kl, observation.kl_of_sequence)
        if observation.entropy is not None and math.isfinite(observation.entropy):
            self._entropy_collapsed(observation.entropy)
        share = observation.clip_fraction
        if share is None or not math.isfinite(share):
            return
        self._clip.append(share)
        now = statistics.median(self._clip)
        if len(self._clip) == KNOWN and now > self._clip_limit:
            words = f"{100 * now:.3g}% of the tokens are clipped: the updates are too large, or "
            words += "the rollouts too old"
            self.report("clip_fraction_saturation", words, now, self._clip_limit)

    def _kl_blew_up(self, kl: float, of_sequence: bool) -> None:
        self._kl.append(kl)
        allowed = self._kl_limit * (TOKENS_IN_A_SEQUENCE if of_sequence else 1.0)
        if self._first_kl is None:
            self._first_kl = kl
        if kl <= self._kl_limit and max(islice(reversed(self._kl), LAST)) <= self._kl_limit:
            return
        earlier, last = split(self._kl, LAST)
        now, before = statistics.median(last), statistics.median(earlier or [0.0])
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
        if runaway or far:
            words = f"the policy drifts too far from the reference model: KL {now:.4g}, {since}"
            self.report("kl_blowup", words, now, limit, before=before)

    def _entropy_collapsed(self, entropy: float) -> None:
        self._entropy.append(entropy)
        if len(self._first_entropies) < FIRST:
            self._first_entropies.append(entropy)
        start = max(self._first_entropies)
        now, limit = statistics.median(self._entropy), self._entropy_floor * start
        if len(self._entropy) >= SOON and start > 0 and now < limit:
            words = f"the policy's outputs hardly vary any more: entropy {now:.4g}, down from "
            words += f"{start:.4g} at the start"
            self.report("entropy_collapse", words, now, limit, start=start)
