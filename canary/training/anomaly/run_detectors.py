"""Runs the detectors on the rows of a launch. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from canary.record.alert import Alert, Severity
from canary.training.anomaly.advanced import AdvancedAnomalyDetector
from canary.training.anomaly.detectors.finite import FiniteDetector
from canary.training.anomaly.hooks import AnomalyDetectionHook, StopTraining
from canary.training.anomaly.log import ALERTS_FILE, AlertLog
from canary.training.anomaly.observation import from_row

if TYPE_CHECKING:
    from canary.record.step_row import Row, RowAlert


class RunDetectors:
    """Checks each row of one launch and rank. Rank 0 runs all detectors. The other ranks have the
    same rates and norms, so they only check for losses that are not finite."""

    def __init__(
        self,
        run_dir: Path,
        launch: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        scaled_gradients: bool = False,
        stop_on: Severity | None = None,
    ) -> None:
        self._detector = AdvancedAnomalyDetector(
            save_alerts=False, scaled_gradients=scaled_gradients, stop_on=stop_on
        )
        if rank:
            self._detector.detectors = [FiniteDetector(scaled_gradients)]
        self._place = {"launch": launch} | ({"rank": rank} if ranks > 1 else {})
        self._log = AlertLog(run_dir / ALERTS_FILE)
        self._now: list[Alert] = []
        self._detector.add_listener(self._keep)
        AnomalyDetectionHook(self._detector).register_with_profiler()

    def judge(self, row: Row) -> StopTraining | None:
        """Put the alerts of a row into it. Return StopTraining if the training must end."""
        stop = None
        try:
            self._detector.judge(from_row(row))
        except StopTraining as wanted:
            stop = wanted
        if self._now:
            row["alerts"] = [cast("RowAlert", alert.as_dict() | self._place) for alert in self._now]
            self._now = []
        return stop

    def _keep(self, alerts: list[Alert], step: int) -> None:
        self._now = alerts
        self._log.add(alerts, **self._place)
