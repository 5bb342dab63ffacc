"""The switch from the first steps of a training, which are looked at closely, to those timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import torch

from canary.config.spans import look_steps
from canary.record.exact import Calls, Exact
from canary.record.step_row import Row
from canary.training.exact.fingerprints import describe_data
from canary.training.exact.signals import BLIND, ExactSignals, Trained


class Look:
    """The first steps of a training: described exactly, and never timed.

    The loops ask it for `exact` at each event. After its last step it leaves nothing behind: hooks
    are removed, copies are freed, and the peak of the device's memory is reset.
    """

    def __init__(
        self, steps: int, exact: ExactSignals | None, over: Callable[[ExactSignals], None]
    ) -> None:
        """`steps`: its length. `exact`: describes the steps; None: nothing is looked at. `over` is
        called once, with the complete signals."""
        self.exact: ExactSignals = exact if steps and exact is not None else BLIND
        """What describes the running step; `BLIND` after the look."""
        self._steps = steps
        self.length_is(None)
        self._over = over
        self._undo = contextlib.ExitStack()

    @property
    def is_on(self) -> bool:
        """Whether the running step is looked at."""
        return self.exact is not BLIND

    def length_is(self, steps: int | None) -> None:
        """Shorten the look of a training of so many steps; None: it is not known."""
        self._steps = look_steps(self._steps, steps)
        if self.is_on:  # Operators are counted in the last step of a very short look.
            self.exact.work_by(self._steps)

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call `undo` when the look ends, in whatever way."""
        self._undo.callback(undo)

    def leaves_out(self, own: Callable[[], Iterable[torch.Tensor]]) -> None:
        """Leave the canary's own tensors out of the signals."""
        if self.is_on:
            before = self.exact.own_tensors
            self.exact.own_tensors = lambda: [*before(), *own()]

    def ends_with(self, count: int) -> bool:
        """Return whether the look ends with the `count`-th step of the training."""
        return self.is_on and count >= self._steps

    def end(self) -> None:
        """End the look: its last step has ended and its rows are written, or the training ended."""
        if not self.is_on:
            return
        exact, self.exact = self.exact, BLIND
        exact.training_ended()
        self._undo.close()
        self._over(exact)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def give_up(self) -> None:
        """Stop without a result: the training failed."""
        exact, self.exact = self.exact, BLIND
        if exact is not BLIND:
            exact.give_up()
        self._undo.close()


def signals_of(exact: ExactSignals, rows: list[Row], trained: Trained, calls: Calls) -> Exact:
    """Return the record's `exact` of a look that is over. `rows`: of its steps; `calls`: so far."""
    exact.add_rows(rows)
    return {"steps": len(rows), "data": describe_data(trained), **exact.found, "calls": calls}


def unmeasured_in(exact: ExactSignals) -> dict[str, str]:
    """Return what a look did not show, and why."""
    if exact.failed is not None:
        why = f"the look failed, and the training went on without it: {exact.failed}"
        return {"exact": f"{why}; please report it"}
    return {} if exact.uncounted is None else {"exact.work": exact.uncounted}


def no_look() -> Look:
    """Return the look of a training that is only timed."""
    return Look(0, None, lambda _: None)
