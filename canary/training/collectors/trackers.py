"""Tells the trackers of a trainer (`report_to`) scalars of our own, through its own callbacks.

`Trainer.log` is not used: it would change `log_history` and how often the trainer logs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any


def reporting_callbacks(trainer: Any) -> list[Any]:
    """The callbacks of a trainer that are transformers' trackers."""
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    kinds = tuple(kind for kind in INTEGRATION_TO_CALLBACK.values() if isinstance(kind, type))
    return [one for one in trainer.callback_handler.callbacks if isinstance(one, kinds)]


class Trackers:
    """The trackers that are on."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._callbacks = reporting_callbacks(trainer)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """As if the trainer had logged `values` at `step`."""
        self._tell(self._callbacks, step, values)

    def write(self, step: int, name: str, text: str) -> None:
        """A text at `step`, for those that keep texts beside scalars: TensorBoard."""
        keepers = [one for one in self._callbacks if hasattr(one, "tb_writer")]
        self._tell(keepers, step, {name: text})

    def _tell(self, callbacks: Sequence[Any], step: int, logs: Mapping[str, Any]) -> None:
        trainer = self._trainer
        state = copy.copy(trainer.state)
        state.global_step = step
        for callback in callbacks:
            callback.on_log(
                trainer.args, state, trainer.control, logs=dict(logs), model=trainer.model
            )
