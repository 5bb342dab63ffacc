"""Runs all detectors: `AdvancedAnomalyDetector` with one call per step, and `RunDetectors` on the
rows of a launch. Imports torch at first use."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from canary.config.output import OUTPUT_DIR
from canary.errors import UsageError
from canary.record.alert import SEVERITIES, Alert, Severity
from canary.training.anomaly.detectors.common import Detector
from canary.training.anomaly.detectors.gradient import FiniteDetector, GradientDetector
from canary.training.anomaly.detectors.knobs import BatchSizeDetector, LearningRateDetector
from canary.training.anomaly.detectors.loss import ConvergenceDetector
from canary.training.anomaly.detectors.online import (
    CalibrationDetector,
    RewardDriftDetector,
    RLHFDetector,
)
from canary.training.anomaly.hooks import (
    ALERTS_FILE,
    AlertLog,
    AnomalyDetectionHook,
    Handler,
    StopTraining,
    call_all,
    say_failed,
)
from canary.training.anomaly.observation import Observation, from_row

if TYPE_CHECKING:
    from canary.record.step_row import Row, RowAlert
    from canary.training.anomaly.measure import Measure

Settings = Mapping[str, float] | None
LIMITS: Mapping[str, Mapping[str, float | None]] = {
    "gradient": {"explosion_threshold": None, "vanishing_threshold": None, "window_size": 100},
    "learning_rate": {"change_threshold": 0.3, "min_lr": 1e-8, "max_lr": 1.0},
    "batch_size": {"performance_threshold": 0.1, "window_size": 20},
    "convergence": {"plateau_threshold": 0.001, "plateau_window": 50},
    "reward_drift": {"drift_threshold": 0.1, "calibration_threshold": 0.7},
    "rlhf": {"kl_limit": None, "entropy_floor": 0.1, "clip_limit": 0.5},
}
"""What a user may set, by section, with its default; None: the run's own past counts too."""


class AdvancedAnomalyDetector:
    """Checks a training, step by step.

        detector = AdvancedAnomalyDetector(output_dir="run")
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()
            alerts = detector.analyze_training_step(model=model, optimizer=optimizer, loss=loss)
            optimizer.zero_grad()

    Args:
        output_dir: folder of `alerts.jsonl`, to which each alert is appended as it happens, and of
            `alert_summary.json`, which is written at the end.
        save_alerts: whether to write these files.
        gradient: explosion_threshold 10.0, vanishing_threshold 1e-6, window_size 100.
        learning_rate: change_threshold 0.3, min_lr 1e-8, max_lr 1.0.
        batch_size: performance_threshold 0.1, window_size 20.
        convergence: plateau_threshold 0.001, plateau_window 50.
        reward_drift: drift_threshold 0.1, calibration_threshold 0.7.
        rlhf: kl_limit 1.0, entropy_floor 0.1, clip_limit 0.5.
        scaled_gradients: True for float16, whose first gradients overflow until their scale fits.
        stop_on: an alert of at least this severity raises StopTraining.
        detectors: your additional detectors, with `observe(observation) -> Iterable[Alert]`.

    Thresholds that you set are taken as given. A default `explosion_threshold`,
    `vanishing_threshold` or `kl_limit` is also compared with the run's own past.

    Raises:
        UsageError: unknown or invalid threshold, or unknown severity.
    """

    def __init__(
        self,
        output_dir: str | Path = f"{OUTPUT_DIR}/anomaly",
        save_alerts: bool = True,
        gradient: Settings = None,
        learning_rate: Settings = None,
        batch_size: Settings = None,
        convergence: Settings = None,
        reward_drift: Settings = None,
        rlhf: Settings = None,
        *,
        scaled_gradients: bool = False,
        stop_on: Severity | None = None,
        detectors: Iterable[Detector] = (),
    ) -> None:
        if stop_on is not None and stop_on not in SEVERITIES:
            raise UsageError(f"unknown severity {stop_on!r}", f"use one of {', '.join(SEVERITIES)}")
        of_rewards = _limits("reward_drift", reward_drift)
        self.detectors: list[Detector] = [
            FiniteDetector(scaled_gradients),
            GradientDetector(**_limits("gradient", gradient)),
            LearningRateDetector(**_limits("learning_rate", learning_rate)),
            BatchSizeDetector(**_limits("batch_size", batch_size)),
            ConvergenceDetector(**_limits("convergence", convergence)),
            CalibrationDetector(**of_rewards),
            RewardDriftDetector(of_rewards["drift_threshold"]),
            RLHFDetector(**_limits("rlhf", rlhf)),
            *detectors,
        ]
        self.stop_on = stop_on
        self._log = AlertLog(Path(output_dir) / ALERTS_FILE if save_alerts else None)
        # Also at the end of the process, for a loop that does not call `flush`.
        weakref.finalize(self, self._log.write_summary)
        self._told: list[Alert] = []
        self._listeners: list[Handler] = []
        self._measure: Measure | None = None
        self._step = 0

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Log also the alerts that a subclass adds in its `analyze_training_step`."""
        super().__init_subclass__(**arguments)
        own = vars(cls).get("analyze_training_step")
        if own is None:
            return

        @functools.wraps(own)
        def analyze(self: AdvancedAnomalyDetector, *given: Any, **named: Any) -> list[Alert]:
            alerts = list(own(self, *given, **named) or ())
            told = {id(alert) for alert in self._told}
            added = [alert for alert in alerts if id(alert) not in told]
            if added:
                self._tell(added, added[0].step)
            return alerts

        cls.analyze_training_step = analyze  # type: ignore[method-assign]

    def analyze_training_step(
        self,
        model: Any = None,
        optimizer: Any = None,
        loss: Any = None,
        batch_size: int | None = None,
        rewards: Any = None,
        predictions: Any = None,
        *,
        grad_norm: Any = None,
        kl: Any = None,
        entropy: Any = None,
        clip_fraction: Any = None,
        learning_rate: Any = None,
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> list[Alert]:
        """Check one optimizer step. Call it after `backward` and before `zero_grad`.

        On a GPU it does not wait: it returns the alerts of the steps, one or two ago, whose numbers
        have arrived. `flush` returns the rest.

        Args:
            model: gives gradients. optimizer: gives learning rates.
            loss: the raw loss, before any filter; 0-d tensor or number.
            batch_size: samples of the step.
            rewards: one per sample: tensor, array or list. predictions: of rewards, one per sample.
            grad_norm: the gradient norm if you know it, as `clip_grad_norm_` returns it.
            kl: to the reference model, mean per token. entropy: mean per token, in nats.
            clip_fraction: share of clipped tokens.
            learning_rate: of the step, if the optimizer already has that of the next one.
            metrics: other numbers by name, for your own detectors.
            step: step number; counted from 1 by default.

        Raises:
            StopTraining: by a handler or `stop_on`.
            UsageError: an argument is not a number.
        """
        from canary.training.anomaly.measure import Measure

        self._step = self._step + 1 if step is None else step
        self._told = []
        if self._measure is None:
            self._measure = Measure()
        numbers = {"loss": loss, "grad_norm": grad_norm, "kl": kl, "entropy": entropy}
        observations = self._measure.take(
            self._step,
            {**numbers, "clip_fraction": clip_fraction},
            model=model,
            optimizer=optimizer,
            batch_size=batch_size,
            rewards=rewards,
            predictions=predictions,
            metrics=metrics or {},
            learning_rate=learning_rate,
        )
        return self._judge_all(observations)

    def flush(self) -> list[Alert]:
        """Wait for the last numbers from the device, return their alerts and write the summary.
        Call it at the end."""
        try:
            return self._judge_all(self._measure.ready(wait=True)) if self._measure else []
        finally:
            self._log.write_summary()

    def _judge_all(self, observations: Iterable[Observation]) -> list[Alert]:
        return [alert for observation in observations for alert in self.judge(observation)]

    def judge(self, observation: Observation) -> list[Alert]:
        """Check one step, log its alerts and call the listeners.

        Raises:
            StopTraining: by a handler or `stop_on`.
        """
        alerts = list(self.observe(observation))
        if alerts:
            self._tell(alerts, observation.step)
        return alerts

    def _tell(self, alerts: list[Alert], step: int) -> None:
        self._told += alerts
        self._log.add(alerts)
        try:
            call_all(tuple(self._listeners), alerts, step)
            for alert in alerts:
                if self.stop_on is not None and alert.at_least(self.stop_on):
                    raise StopTraining(
                        f"stopped at step {alert.step} by {alert.type} ({alert.severity}): "
                        f"{alert.message}",
                        "read all alerts in alerts.jsonl; run without --stop-on to continue "
                        "despite alerts",
                    )
        except StopTraining:
            self._log.write_summary()
            raise

    def observe(self, observation: Observation) -> list[Alert]:
        """Return the alerts of all detectors for one step. A subclass may add alerts."""
        found: list[Alert] = []
        for detector in tuple(self.detectors):
            try:
                seen = list(detector.observe(observation) or ())
                wrong = next((one for one in seen if not isinstance(one, Alert)), None)
                if wrong is not None:
                    raise TypeError(f"observe() gave {type(wrong).__name__} instead of an Alert")
                found += seen
            except Exception as error:  # noqa: BLE001 - a user's detector may raise anything
                self.detectors.remove(detector)
                name, step = type(detector).__name__, observation.step
                say_failed(f"{name} failed at step {step} and is now disabled", error)
        return found

    def add_listener(self, listener: Handler) -> None:
        """Call `listener(alerts, step)` at each step with alerts, from now on."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove_listener(self, listener: Handler) -> None:
        """Stop calling `listener`."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def summary(self) -> dict[str, Any]:
        """Return `total_alerts`, `by_category`, `by_severity`, `latest_alerts` of all so far."""
        return self._log.summary()


def _limits(section: str, settings: Settings) -> dict[str, Any]:
    """Return the limits of a section, with those that the user sets."""
    given, known = dict(settings or {}), LIMITS[section]
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"AdvancedAnomalyDetector({section}={given!r}) has an unknown threshold",
                f"{section} takes {', '.join(known)}",
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        least = 2 if "window" in name else 0
        if not number or not value >= least or value == 0:
            raise UsageError(
                f"AdvancedAnomalyDetector({section}={{{name!r}: {value!r}}}) is not a threshold",
                f"use a number {'of steps, at least 2' if least else 'above 0'}",
            )
    return {**known, **given}


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
