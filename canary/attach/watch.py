"""Watches one `train()` of the user's command, and leaves everything else as it is."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.attach.suppress import Suppression
from canary.collect.probes.calls import count_calls
from canary.runner.base import Job, Result
from canary.runner.failure import describe_failure, one_line
from canary.runner.inside import Inside, claim, set_up_torch


class Watch:
    """The job of this process. The first training that begins is the one recorded."""

    def __init__(self, job: Job, started: float) -> None:
        self._job = job
        self._started = started
        self._running = False
        self._stack = contextlib.ExitStack()
        self._suppression = Suppression(job.kind, _say)

    def process_begins(self) -> None:
        """Counts calls from here on; a training that is cut short pushes nothing to a hub."""
        self._calls = self._stack.enter_context(count_calls())
        if self._job.stop_after is not None:
            self._suppression.pushes()

    def around(self, trainer: Any, train: Callable[[], Any]) -> Any:
        """Calls `train`, watched where it is the first; one inside another is part of it."""
        if self._running:
            return train()
        self._running = True
        try:
            if not claim(self._job):
                return self._unwatched(trainer, train)
            return self._watched(trainer, train)
        finally:
            self._running = False

    def _unwatched(self, trainer: Any, train: Callable[[], Any]) -> Any:
        """A second training: not recorded, and no longer than the first."""
        if self._job.stop_after is None:
            return train()
        from canary.attach.suppress import StopAfter

        self._suppression.uploads(trainer)
        callback = StopAfter(self._job.stop_after, self._suppression.saves)
        trainer.add_callback(callback)
        try:
            return train()
        finally:
            trainer.remove_callback(callback)

    def _watched(self, trainer: Any, train: Callable[[], Any]) -> Any:
        inside = Inside(self._job, self._started)
        set_up_torch(self._job)
        if self._job.stop_after is not None:
            self._suppression.uploads(trainer)
        if self._job.kind == "probe":
            trainer.args.output_dir = str(Path(self._job.scratch_dir) / "trainer")
        inside.lap("before_training")

        def cut() -> None:
            self._suppression.saves()
            if self._job.kind == "probe":
                return  # a probe is always short
            state = trainer.state
            inside.notes.append(
                f"ended after step {state.global_step} of {state.max_steps}: what saves, pushes or "
                "uploads after it did nothing"
            )

        probe = inside.attach(trainer, on_cut=cut)
        try:
            outcome = probe.run(train)
        except BaseException as error:
            inside.leave(describe_failure(error))
            raise
        inside.notes += self._suppression.told
        inside.leave(self._described(inside, trainer))
        probe.detach()
        if self._job.kind == "probe":
            self._suppression.saves()
        return outcome

    def _described(self, inside: Inside, trainer: Any) -> Result:
        """The result; where the canary itself fails, that is the record's matter and not the
        user's: the command goes on as if it were alone."""
        try:
            return inside.completed(trainer, self._calls)
        except Exception as error:  # noqa: BLE001 - a stranger's trainer may lack anything
            traceback.print_exc()
            return Result(
                status="failed",
                reason=f"the canary could not describe this training: {one_line(error)}",
                hint="see log.txt; please report it",
            )


def _say(text: str) -> None:
    print(f"canary: {text}", file=sys.stderr, flush=True)
