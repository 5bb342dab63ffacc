"""The fault of `canary demo`: EOS is masked in the answers.

It imitates a pull request that sets the pad token to the EOS token. Then every EOS counts as
padding (huggingface/trl#3200), so the model no longer learns to end its answers.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MASKS = (
    ("completion_mask", "input_ids"),
    ("chosen_attention_mask", "chosen_input_ids"),
    ("rejected_attention_mask", "rejected_input_ids"),
)
"""Masks of the answers, and their tokens: of today's trl, and of each side in older ones."""


def mask_eos(trainer: Any) -> None:
    """Make the trainer's collator mask every EOS of the completions."""
    collate = trainer.data_collator
    eos = trainer.processing_class.eos_token_id

    def masked(examples: Any) -> Any:
        batch = collate(examples)
        for mask, ids in MASKS:
            if mask in batch:
                batch[mask][batch[ids] == eos] = 0
        return batch

    trainer.data_collator = masked


class Finder(importlib.abc.MetaPathFinder):
    """Waits for the import of the module that builds trainers, and changes each built trainer."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer only for that module, and only once."""
        if fullname != "canary.training.trainers":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            build = module.build_trainer

            def built(given: Any) -> Any:
                trainer = build(given)
                mask_eos(trainer)
                return trainer

            module.build_trainer = built  # type: ignore[attr-defined]

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())
