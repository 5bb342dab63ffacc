"""The change that `canary demo` plays through: EOS is masked in the answers.

It stands in for a pull request that sets the pad token to the EOS token, after which every EOS is
taken for padding (huggingface/trl#3200): what the answers end with no longer counts.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def mask_eos(trainer: Any) -> None:
    """Wraps the trainer's collator."""
    collate = trainer.data_collator
    eos = trainer.processing_class.eos_token_id

    def masked(examples: Any) -> Any:
        batch = collate(examples)
        batch["completion_mask"][batch["input_ids"] == eos] = 0
        return batch

    trainer.data_collator = masked


class Finder(importlib.abc.MetaPathFinder):
    """Waits for the module that builds trainers, and changes what it builds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Only ever answers for that module, once."""
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
