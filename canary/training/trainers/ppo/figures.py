"""The metrics of a step, from its rollout and its updates."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from accelerate.utils import gather

from canary.training.trainers.ppo.objective import Experience, Loss, Moments, kept, moments


class Figures:
    """Sums over the tokens of each update, and their means over the updates of a step."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._tokens = torch.zeros(())
        self._sums: dict[str, torch.Tensor] = {}
        self._updates: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._done = 0

    def begin(self, tokens: torch.Tensor) -> torch.Tensor:
        """Begin an update on `tokens` of this rank; return the tokens of all ranks."""
        self._sums = {}
        self._tokens = self._accelerator.reduce(tokens.float(), "sum")
        return self._tokens

    def add(
        self,
        policy: Loss,
        value: Loss,
        log_ratio: torch.Tensor,
        mask: torch.Tensor,
        loss: torch.Tensor,
        entropy: torch.Tensor | None = None,
    ) -> None:
        """Add a micro-batch of the update. `entropy` is summed over its tokens, or None if the loss
        has no entropy bonus."""
        with torch.no_grad():
            moved = kept(log_ratio.float(), mask)
            found = {
                "loss": loss.detach(),
                "policy_loss": policy.total.detach(),
                "value_loss": value.total.detach(),
                "clip_ratio": policy.clipped,
                "value_clip_ratio": value.clipped,
                "approx_kl": (torch.expm1(moved) - moved).sum(),
            }
            if entropy is not None:
                found["entropy_update"] = entropy.detach()
            for name, part in found.items():
                self._sums[name] = self._sums.get(name, torch.zeros_like(part)) + part
            most = torch.expm1(moved).abs().max()
            before = self._sums.get("ratio_deviation", torch.zeros_like(most))
            self._sums["ratio_deviation"] = torch.maximum(before, most)

    def end(self) -> torch.Tensor:
        """Return the update's loss, averaged over the tokens of all ranks."""
        deviation = self._sums.pop("ratio_deviation")
        names = sorted(self._sums)
        sums = self._accelerator.reduce(torch.stack([self._sums[n].float() for n in names]), "sum")
        for name, each in zip(names, sums / self._tokens, strict=True):
            self._updates[name].append(each)
        self._updates["ratio_deviation"].append(deviation)
        return self._updates["loss"][-1]

    def updated(self) -> None:
        """Count an update that was made: the KL did not end the step before it."""
        self._done += 1

    def approx_kl(self) -> float:
        """Return the newest update's KL(policy of the rollout || policy): mean per token, nats."""
        return float(self._updates["approx_kl"][-1])

    def means(self) -> dict[str, float]:
        """Return the means over the updates, including one that the KL stopped: `loss`,
        `policy_loss`, `value_loss`, `clip_ratio`, `value_clip_ratio`, `approx_kl`, and
        `entropy_update` if the loss has an entropy bonus. Also return `ratio_deviation`: the
        largest distance of a ratio from 1 in the first update, on any rank; and `updates`: how many
        were made."""
        deviation = self._updates.pop("ratio_deviation")
        found = {name: torch.stack(values).mean() for name, values in self._updates.items()}
        named = {**found, "ratio_deviation": largest(deviation[0])}
        values = torch.stack([value.float() for value in named.values()]).tolist()
        return dict(zip(named, values, strict=True)) | {"updates": float(self._done)}


def rollout_metrics(
    collected: Experience, coefficient: float, eos_id: int | None
) -> dict[str, float]:
    """Return the metrics over the completions of all ranks.

    `score` is that of the reward model or functions; `reward` and `reward_std` are of scores minus
    the penalty for a missing EOS. `kl`, `entropy`, `values_mean`, `logprobs` and
    `reference_logprobs` are means per token; `kl_sequence` is the mean per completion."""
    known, mask = collected.rollout.tensors(), collected.rollout.completion_mask
    of_rows = {
        "score": known["raw_scores"],
        "reward": known["scores"],
        "completion_length": mask.sum(dim=1),
        "eos_rate": collected.rollout.ended(eos_id),
    }
    of_tokens = {
        "kl": collected.kl,
        "entropy": known["entropy"],
        "values_mean": known["values"],
        "logprobs": known["logprobs"],
        "reference_logprobs": known["reference_logprobs"],
    }
    columns = of_rows | {name: kept(value, mask).sum(dim=1) for name, value in of_tokens.items()}
    # The rows of all ranks, as float64 on the host; each rank must have as many rows.
    local = torch.stack([column.float() for column in columns.values()], dim=1)
    whole = gather(local).cpu().double()
    table = dict(zip(columns, whole.unbind(dim=1), strict=True))
    tokens = table["completion_length"].sum()
    found = {name: table[name].mean() for name in of_rows}
    found |= {name: table[name].sum() / tokens for name in of_tokens}
    found["kl_sequence"] = table["kl"].mean()
    found["explained_variance"] = collected.explained_variance
    found["reward_std"] = table["reward"].std(correction=min(1, len(table["reward"]) - 1))
    return {name: float(value) for name, value in found.items()} | {"kl_coef": coefficient}


def moments_of_ranks(values: torch.Tensor, mask: torch.Tensor, accelerator: Any) -> Moments:
    """Return mean and variance over the mask's tokens of all ranks."""
    if accelerator.num_processes == 1:
        return moments(values, mask)
    sums = torch.stack([kept(values, mask).sum(), mask.sum().to(values.dtype)])
    total, count = accelerator.reduce(sums, "sum")
    mean = total / count
    squares = accelerator.reduce(kept(values - mean, mask).square().sum(), "sum")
    return Moments(mean, squares / (count - 1).clamp(min=1))


def largest(value: torch.Tensor) -> torch.Tensor:
    """Return the largest value over all ranks, or NaN if one is NaN."""
    found: torch.Tensor = gather(value.reshape(1)).max()
    return found
