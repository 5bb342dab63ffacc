"""Collators of trl that pad on the left, for `bench.check_healthy`."""

from __future__ import annotations

from typing import Any

import torch


class _Left:
    """Moves the padding of another collator's rows to their left."""

    def __init__(self, tokenizer: Any) -> None:
        self.inner = self.made(tokenizer.pad_token_id)

    def made(self, pad: int) -> Any:
        """Return the collator that pads on the right."""
        raise NotImplementedError

    def __call__(self, rows: Any) -> dict[str, Any]:
        batch: dict[str, Any] = self.inner(rows)
        for name, mask in [*batch.items()]:
            if name.endswith("attention_mask"):
                self._move(batch, mask.sum(1), name.removesuffix("attention_mask"))
        return batch

    def _move(self, batch: dict[str, Any], sizes: torch.Tensor, prefix: str) -> None:
        ids = batch[f"{prefix}input_ids"]
        others = {name for name in batch if name.startswith("KL_")} if not prefix else set()
        for name, value in [*batch.items()]:
            same = torch.is_tensor(value) and value.shape == ids.shape and name not in others
            if same and name.startswith(prefix):
                lines = zip(value, sizes.tolist(), strict=True)
                batch[name] = torch.stack([line.roll(ids.shape[1] - size) for line, size in lines])


class SFT(_Left):
    """For SFTTrainer."""

    def made(self, pad: int) -> Any:
        """Return trl's collator."""
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        return DataCollatorForLanguageModeling(pad)


class DPO(_Left):
    """For DPOTrainer."""

    def made(self, pad: int) -> Any:
        """Return trl's collator."""
        from trl.trainer.dpo_trainer import DataCollatorForPreference

        return DataCollatorForPreference(pad, max_length=128)


class Reward(_Left):
    """For RewardTrainer."""

    def made(self, pad: int) -> Any:
        """Return trl's collator."""
        from trl.trainer.reward_trainer import DataCollatorForPreference

        return DataCollatorForPreference(pad)


class KTO(_Left):
    """For KTOTrainer."""

    def made(self, pad: int) -> Any:
        """Return trl's collator."""
        from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

        return DataCollatorForUnpairedPreference(pad, max_length=128)


LEFT = {"sft": "SFT", "dpo": "DPO", "reward": "Reward", "kto": "KTO"}
"""The class for each trainer whose collator may be replaced."""
