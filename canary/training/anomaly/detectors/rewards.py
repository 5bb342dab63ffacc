"""Inaccurate reward predictions, and changes in the distribution of rewards. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.common import Episodes, alert, long_run, shift_of, split
from canary.training.anomaly.observation import Agreement, Observation, Sample

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


class CalibrationDetector:
    """Checks calibration: 1 - mean absolute error / root mean square of the rewards. It is poor
    below `calibration_threshold`; a fall by more than `drift_threshold` is a drift."""

    def __init__(self, drift_threshold: float = 0.1, calibration_threshold: float = 0.7) -> None:
        self._drift = drift_threshold
        self._poor = calibration_threshold
        self._errors: deque[float] = deque(maxlen=WINDOW)
        self._squares: deque[float] = deque(maxlen=WINDOW)
        self._seen = 0
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check the predictions of one step."""
        found = observation.agreement
        if found is None or not math.isfinite(found.error + found.square):
            return
        self._episodes.next()
        self._errors.append(found.error)
        self._squares.append(found.square)
        self._seen += 1
        scale = math.sqrt(statistics.fmean(self._squares))
        if scale <= 0.0:
            return
        yield from self._is_poor(observation.step, found, scale)
        if self._seen % EVERY == 0 and len(self._errors) >= PAST + RECENT:
            yield from self._drifted(observation.step, scale)

    def _is_poor(self, step: int, found: Agreement, scale: float) -> Iterator[Alert]:
        score = None
        if found.count >= SAMPLES:
            # In a single step, a common shift of all samples may be chance: count the rest.
            sure = found.centred_error - SURE * found.centred_std / math.sqrt(found.count)
            if 1 - sure / scale < self._poor:
                score = 1 - found.error / scale
        if score is None and len(self._errors) >= CALLS and self._seen % EVERY == 0:
            recent = list(self._errors)[-RECENT:]
            mean, variance, spread = long_run(recent)
            error = math.sqrt(min(spread / len(recent), variance))
            if 1 - (mean - SURE * error) / scale < self._poor:
                score = 1 - mean / scale
        if self._episodes.is_new("poor", score is not None):
            assert score is not None
            words = f"reward predictions are inaccurate: calibration {score:.3g}"
            more = {"scale": scale, "steps": len(self._errors)}
            yield alert("calibration_poor", step, words, score, self._poor, **more)

    def _drifted(self, step: int, scale: float) -> Iterator[Alert]:
        shift = shift_of(*split(self._errors, RECENT))
        fall = shift.difference / scale
        if self._episodes.is_new("drift", fall > self._drift and shift.sure(SURE)):
            words = "reward predictions became less accurate: calibration fell from "
            words += f"{1 - shift.before / scale:.3g} to {1 - shift.after / scale:.3g}"
            yield alert("calibration_drift", step, words, fall, self._drift, scale=scale)


class RewardDriftDetector:
    """Compares the recent rewards with earlier ones: the mean fell or jumped up, or the standard
    deviation grew. A mean that rises step by step is normal: the training works."""

    def __init__(self, drift_threshold: float = 0.1) -> None:
        self._drift = drift_threshold
        self._means: deque[float] = deque(maxlen=WINDOW)
        self._spreads: deque[float] = deque(maxlen=WINDOW)
        self._squares: deque[float] = deque(maxlen=WINDOW)
        self._seen = 0
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check the rewards of one step."""
        rewards = observation.rewards
        if rewards is None or not math.isfinite(rewards.mean):
            return
        self._episodes.next()
        self._keep(rewards)
        if self._seen % EVERY or len(self._means) < PAST + RECENT:
            return
        scale = math.sqrt(statistics.fmean(self._squares))
        what = self._changed(scale) if scale > 0 else None
        if self._episodes.is_new("drift", what is not None):
            assert what is not None
            words, value, metadata = what
            kind, step = "reward_distribution_drift", observation.step
            yield alert(kind, step, words, value, self._drift, **metadata)

    def _keep(self, rewards: Sample) -> None:
        self._seen += 1
        spread = rewards.std if rewards.std is not None and math.isfinite(rewards.std) else 0.0
        self._means.append(rewards.mean)
        self._spreads.append(spread)
        self._squares.append(rewards.mean**2 + spread**2)

    def _changed(self, scale: float) -> tuple[str, float, dict[str, float]] | None:
        before, after = split(self._means, RECENT)
        shift = shift_of(before, after)
        relative = shift.difference / scale
        jumped = relative > 0 and self._jumped(before, after, shift.difference)
        if abs(relative) > self._drift and shift.sure(SURE) and (relative < 0 or jumped):
            word = "jumped" if relative > 0 else "fell"
            return (
                f"the mean reward {word} from {shift.before:.4g} to {shift.after:.4g}",
                abs(relative),
                {"before": shift.before, "after": shift.after, "scale": scale},
            )
        spread = shift_of(*split(self._spreads, RECENT))
        if spread.before > 0 and spread.after > SPREAD * spread.before and spread.sure(SURE):
            return (
                "the standard deviation of the rewards grew from "
                f"{spread.before:.4g} to {spread.after:.4g}",
                spread.difference / scale,
                {"before": spread.before, "after": spread.after, "scale": scale},
            )
        return None

    def _jumped(self, before: list[float], after: list[float], rise: float) -> bool:
        half = RECENT // 2
        mean = statistics.fmean
        late = abs(mean(after[half:]) - mean(after[:half]))
        early = abs(mean(before[-half:]) - mean(before))
        return max(late, early) < FLAT * rise
