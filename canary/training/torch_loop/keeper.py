"""Stores a plain loop for the job of `canary exec`, and ends it where recording ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from canary.protocol.failure import one_line
from canary.protocol.job import Job, Result
from canary.record.ranks import rank_path
from canary.record.step_row import Row
from canary.training.launch import TrainingLaunch
from canary.training.recorder.attached import JobKeeper
from canary.training.recorder.collector import LoopCollector
from canary.training.torch_loop.plain_loop import PlainLoop

UNSEEN = {
    "losses": ("stability.loss_values", "the loop called backward on no single number"),
    "norms": (
        "stability.grad_norm_values",
        "the loop did not call torch.nn.utils.clip_grad_norm_; the look reads the norms",
    ),
    "tokens": ("tokens", "no batch of token ids was seen"),
    "labels": (
        "tokens.label_tokens",
        "no label per token was seen in the batches, nor among the model's arguments",
    ),
    "samples": ("perf.samples_per_sec", "no batch was seen"),
}
"""What a loop may not show: the part of the record that is missing then, and why."""
OF_GRADIENTS = ("stability.grad_norm_values", "exact.first_gradient", "exact.clipping")
INSIDE_BACKWARD = "the optimizers step inside backward, so no moment has all gradients"


def why_unseen(seen: Set[str]) -> dict[str, str]:
    """Return the reasons of what the steps did not show; `seen`: keys of `UNSEEN`."""
    if "tokens" not in seen:
        seen = seen | {"labels"}  # one reason is enough
    return dict(why for name, why in UNSEEN.items() if name not in seen)


class LoopKeeper(JobKeeper):
    """The keeper of a loop that does not know of the canary."""

    _loop: PlainLoop

    def __init__(self, job: Job, training: TrainingLaunch) -> None:
        super().__init__(job, training)
        self.notes: list[str] = training.notes
        self._rows = rank_path(Path(job.rows_file), training.rank)
        self._rows_before = self._rows.stat().st_size if self._rows.exists() else 0
        self.seen: set[str] = set()
        """Which keys of `UNSEEN` the steps showed."""
        self._inside_backward = False

    def learned(self, arguments: dict[str, Any], dtype: str | None) -> None:
        """Add settings that the first step showed."""
        self._training.learned(arguments, dtype)
        if not self.ends_after_look:
            self._training.begun(self._loop, self._loop.device)

    def steps_inside_backward(self) -> None:
        """The optimizers step inside backward."""
        self._inside_backward = True

    def _result(self, collector: LoopCollector) -> Result:
        result = super()._result(collector)
        if collector.steps:
            missing = why_unseen(self.seen)
            if self._inside_backward:
                missing |= dict.fromkeys(OF_GRADIENTS, INSIDE_BACKWARD)
            return replace(result, unmeasured=result.unmeasured | missing)
        hint = "give the command that trains, or use canary.Recorder in your training loop"
        return replace(result, hint=hint)

    def fail(self, collector: LoopCollector, error: Exception) -> None:
        """The canary could not follow the loop: only the record says so."""
        if not self.written:
            self.written = True
            with self._stack:
                collector.give_up()
                reason = f"the canary could not follow this loop: {one_line(error)}"
                self._training.write(Result("failed", reason, "please report it", see_log=True))

    def discard(self, collector: LoopCollector) -> None:
        """Forget the loop: another training is recorded in its place."""
        self.written = True
        collector.give_up()
        with self._stack, contextlib.suppress(OSError):
            self._training.discard()
            os.truncate(self._rows, self._rows_before)

    def keep(self, row: Row) -> None:
        """Append to the job's file of rows, and note what they hold."""
        shown = {
            "losses": row["loss"] is not None,
            # The look reads them by itself.
            "norms": row["grad_norm"] is not None and not row.get("look"),
            "tokens": row["input_tokens"] is not None or row["label_tokens"] is not None,
            "labels": row["label_tokens"] is not None,
            "samples": bool(row["samples"]),
        }
        self.seen |= {name for name, is_shown in shown.items() if is_shown}
        super().keep(row)

    @property
    def ends_after_look(self) -> bool:
        """Whether the process ends with the last step of the look."""
        return self._job.exact


class ProcessEnd:
    """Calls `ended` once when the process ends, with the exception that ends it, if any."""

    def __init__(self, ended: Callable[[BaseException | None], None]) -> None:
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._pid = os.getpid()
        self._before = getattr(sys, "last_value", None)
        atexit.register(self._at_exit)
        self._leave = os._exit
        os._exit = self._exit

    def _at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        self._call(error if error is not self._before else None)

    def _exit(self, status: int) -> NoReturn:
        """End the process as `os._exit` does: it calls nothing that was registered."""
        self._call(None)
        self._leave(status)

    def _call(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None and os.getpid() == self._pid:
            ended(error)
