"""`AnomalyCallback` runs the detectors on any `transformers.Trainer`.

A callback gets neither the trainer nor the raw loss. So this one finds its trainer among the
process's objects, and wraps methods of that instance while it trains. The logged loss is not used:
the trainer's filter turns a NaN into the last good value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from canary.record.alert import Alert, tracked
from canary.training.anomaly.advanced import AdvancedAnomalyDetector
from canary.training.anomaly.hooks import StopTraining
from canary.training.anomaly.measure import gradient_norm
from canary.training.collectors.aside import Wrapping, living
from canary.training.collectors.metrics import StepMetrics, Trackers


class AnomalyCallback(TrainerCallback):
    """`Trainer(..., callbacks=[AnomalyCallback()])` sends alerts to the detector's `alerts.jsonl`
    and handlers, and as `anomaly/<category>_<severity>` to the trainer's trackers.

    StopTraining, from a handler or the detector's `stop_on`, ends the training after the step:
    `train()` returns normally, and `stopped` holds the reason.

    Args:
        detector: your detector. By default, AdvancedAnomalyDetector(**arguments), with the
            trainer's output folder for its alerts.
    """

    def __init__(self, detector: AdvancedAnomalyDetector | None = None, **arguments: Any) -> None:
        self.detector = detector
        self.stopped: StopTraining | None = None
        self._arguments = arguments
        self._wrapping = Wrapping()
        self._clear()

    def _clear(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._norm: Any = None
        self._rate: Any = None
        self._logged: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Make the detector, and wrap methods of the trainer that has this callback."""
        if self.detector is None:
            arguments: dict[str, Any] = {
                "output_dir": args.output_dir,
                "scaled_gradients": bool(getattr(args, "fp16", False)),
                "save_alerts": state.is_world_process_zero,
            }
            self.detector = AdvancedAnomalyDetector(**arguments | self._arguments)
        self.stopped = None
        self._wrapping.undo()
        self._clear()
        # A trainer whose making failed has no handler.
        handlers = ((one, getattr(one, "callback_handler", None)) for one in living(Trainer))
        trainer = next(one for one, handler in handlers if handler and self in handler.callbacks)
        self._metrics, self._trackers = StepMetrics(trainer), Trackers(trainer)
        self._wrapping.wrap(trainer, "training_step", self._around_training_step)
        self._wrapping.wrap(trainer, "log", self._around_log)
        self._wrapping.wrap(trainer.accelerator, "clip_grad_norm_", self._around_clip)

    def _around_training_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        loss = original(*args, **kwargs)
        self._losses.append(loss.detach())
        return loss

    def _around_log(self, original: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._losses:
            # A trainer that overrides the loop shows only what it logs.
            self._logged = {
                name: float(value) for name, value in logs.items() if isinstance(value, int | float)
            }
        return original(logs, *args, **kwargs)

    def _around_clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._norm = original(*args, **kwargs)
        return self._norm

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read norm and rate: gradients are complete here, and the rate is this step's."""
        if self._norm is None:
            # Without clipping the trainer computes no norm.
            self._norm = gradient_norm(kwargs["model"].parameters())
        if kwargs.get("optimizer") is not None:
            self._rate = kwargs["optimizer"].param_groups[0]["lr"]

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the trainer has logged the previous step."""
        self._metrics.step_ended()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Check the step, before the trainer logs it."""
        losses = self._losses
        given: dict[str, Any] = {
            "step": state.global_step,
            "model": kwargs.get("model"),
            "optimizer": kwargs.get("optimizer"),
            # The losses of micro-batches are already divided by their number.
            "loss": torch.stack([loss.reshape(()) for loss in losses]).sum() if losses else None,
            "batch_size": int(args.per_device_train_batch_size) * len(losses) or None,
            "grad_norm": self._norm,
            "learning_rate": self._rate,
            "metrics": self._logged | self._metrics.fresh(),
        }
        self._clear()
        self._check(state, control, lambda detector: detector.analyze_training_step(**given))
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Check the last steps and unwrap the trainer's methods."""
        self._check(state, control, lambda detector: detector.flush())
        self._wrapping.undo()
        return control

    def _check(
        self, state: Any, control: Any, check: Callable[[AdvancedAnomalyDetector], list[Alert]]
    ) -> None:
        assert self.detector is not None  # training has begun
        found: list[Alert] = []

        def listen(alerts: list[Alert], step: int) -> None:
            found.extend(alerts)

        # A handler may stop the run; the trackers still get its alerts.
        self.detector.add_listener(listen)
        try:
            check(self.detector)
        except StopTraining as stop:
            self.stopped = stop
            control.should_training_stop = True
            print(f"canary: {stop.message}", file=sys.stderr, flush=True)
        finally:
            self.detector.remove_listener(listen)
        if found and self._trackers:
            self._trackers.log(state.global_step, tracked(found))
