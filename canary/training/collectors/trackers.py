"""Sends additional scalars to a trainer's trackers (`report_to`), through its callbacks.

`Trainer.log` is not used: it would change `log_history` and how often the trainer logs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any


def reporting_callbacks(trainer: Any) -> list[Any]:
    """Return the callbacks of a trainer that are transformers' trackers."""
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    kinds = tuple(kind for kind in INTEGRATION_TO_CALLBACK.values() if isinstance(kind, type))
    return [each for each in trainer.callback_handler.callbacks if isinstance(each, kinds)]


class Trackers:
    """The active trackers of a trainer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._callbacks = reporting_callbacks(trainer)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send `values`, as if the trainer had logged them at `step`."""
        self._send(self._callbacks, step, values)

    def write(self, step: int, name: str, text: str) -> None:
        """Send a text at `step` to TensorBoard, the tracker that stores texts."""
        writers = [each for each in self._callbacks if hasattr(each, "tb_writer")]
        self._send(writers, step, {name: text})

    def _send(self, callbacks: Sequence[Any], step: int, logs: Mapping[str, Any]) -> None:
        trainer = self._trainer
        state = copy.copy(trainer.state)
        state.global_step = step
        for callback in callbacks:
            callback.on_log(
                trainer.args, state, trainer.control, logs=dict(logs), model=trainer.model
            )
