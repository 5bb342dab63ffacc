"""PPO on given completions, alone or under torchrun: `python ppo_ranks.py FOLDER BATCH`.

Leaves the weights of rank 0, and what every rank told of its steps.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.integration.ppo.watched_ppo import Listener, ppo_trainer

LONGEST = 7


def completion(prompt: list[int], eos: int) -> list[int]:
    """Drawn from the prompt alone, so that every process gives the same."""
    drawn = torch.Generator().manual_seed(sum(n * i for n, i in enumerate(prompt, start=1)))
    length = int(torch.randint(1, LONGEST + 1, (), generator=drawn))
    return [*torch.randint(20, 200, (length - 1,), generator=drawn).tolist(), eos]


def main(folder: Path, batch: int) -> None:
    """Trains on `batch` rows of this rank, in micro-batches of two."""
    torch.set_num_threads(1)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    trainer = ppo_trainer(
        folder / f"rank{rank}",
        max_steps=2,
        batch_size=2,
        gradient_accumulation_steps=batch // 2,
        dataset_size=16,
        max_new_tokens=LONGEST,
        speed={"shared_forward": True},
        ppo={"ppo_epochs": 2, "ent_coef": 0.01, "whiten_rewards": True, "adap_kl_ctrl": True},
    )
    eos, pad = trainer.processing_class.eos_token_id, trainer.processing_class.pad_token_id

    def generate(input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> torch.Tensor:
        rows = []
        for row, mask in zip(input_ids.tolist(), attention_mask.bool().tolist(), strict=True):
            found = completion([i for i, kept in zip(row, mask, strict=True) if kept], eos)
            rows.append(found + [pad] * (LONGEST - len(found)))
        return torch.cat([input_ids, torch.tensor(rows)], dim=1)

    trainer.model.generate = generate  # type: ignore[method-assign]
    heard = trainer.watch = Listener()
    trainer.train()
    ids = [r["completion_ids"] for r in heard.rollouts]
    told = {"steps": heard.steps, "losses": heard.losses, "ids": ids}
    if rank == 0:
        told["weights"] = {n: v.detach() for n, v in trainer.model.named_parameters()}
    torch.save(told, folder / f"told{rank}.pt")
    if ranks > 1:
        torch.distributed.barrier()
        # Now and then torch aborts a rank that leaves by itself.
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
