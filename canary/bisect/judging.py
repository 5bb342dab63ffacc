"""How the records of a bisect are compared: with the good end's limits and the noise measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.campaign.noise_model import Measured
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, metric_gates_for, thresholds_for
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.estimate import Spread
from canary.compare.timing.lane import FAMILY_BUDGET, GATE_WEIGHTS
from canary.compare.timing.noise import NoiseModel
from canary.record.types import RunRecord

DEFAULTS = Request((), ())


@dataclass
class Judge:
    """Compares records as `canary ab` does; see `Comparer`."""

    here: Path
    """The user's working directory, for the changes between two commits."""
    measured: Measured
    _first: RunRecord | None = None
    """The first record of the good end; its config has the limits of all comparisons."""

    def __call__(
        self,
        current: Sequence[RunRecord],
        baseline: Sequence[RunRecord],
        *,
        paired: bool = False,
        budget: float = FAMILY_BUDGET,
    ) -> Comparison:
        """Judge `current` against `baseline`."""
        if self._first is None:
            self._first = next(iter(baseline), current[0])
        thresholds, tier = thresholds_for(DEFAULTS, (self._first,))
        source = source_between(self.here, baseline[-1], current[-1]) if baseline else None
        found = compare_to_baseline(
            current,
            baseline,
            thresholds,
            paired=paired,
            noise=self._noise(),
            budget=budget,
            metrics=metric_gates_for(DEFAULTS, (self._first,)),
            source=source,
        )
        return replace(found, tier=tier)

    def spread(self, check: str) -> Spread | None:
        """Return the spread of the logarithm of one launch, if it was measured before."""
        noise = self._noise()
        metric = next((name for name in GATE_WEIGHTS if name == check), None)
        return noise.run_spread(metric) if noise is not None and metric is not None else None

    def _noise(self) -> NoiseModel | None:
        return None if self._first is None else self.measured.of(self._first)
