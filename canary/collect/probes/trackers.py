"""Tells the trackers of a trainer (`report_to`) scalars of our own, through its own callbacks.

`Trainer.log` is not used: it would change `log_history` and how often the trainer logs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
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
        trainer = self._trainer
        state = copy.copy(trainer.state)
        state.global_step = step
        for callback in self._callbacks:
            callback.on_log(
                trainer.args, state, trainer.control, logs=dict(values), model=trainer.model
            )
