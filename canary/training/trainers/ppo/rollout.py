"""Rollouts: prompts as token ids, the completions that the policy samples, and their values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from canary.training.trainers.ppo.objective import completion_mask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DataRow = dict[str, Any]


def prompt_ids(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the token ids of the prompt. Conversations go through the chat template, which
    already contains its special tokens."""
    text: Any = row["prompt"]
    plain = isinstance(text, str)
    if not plain:
        text = tokenizer.apply_chat_template(text, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=plain)["input_ids"]
    return ids


@dataclass(frozen=True)
class Prompts:
    """Prompts padded on the left: `ids` and `mask` (rows, tokens), and their rows of the data."""

    ids: torch.Tensor
    mask: torch.Tensor
    rows: tuple[DataRow, ...]


class PromptCollator:
    """Collates rows of the data into a batch of prompts; runs in the data loader's processes.

    `width`: pad to this many tokens; None: to the longest prompt of the batch.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, width: int | None) -> None:
        self._tokenizer = tokenizer
        self._width = width

    def __call__(self, rows: Sequence[DataRow]) -> dict[str, Any]:
        """Return `{ids, mask, rows}`, see `Prompts`."""
        found = [prompt_ids(row, self._tokenizer) for row in rows]
        width = self._width or max(map(len, found))
        pad = self._tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(each)) + each for each in found])
        mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in found])
        return {"ids": ids, "mask": mask, "rows": [dict(row) for row in rows]}


@dataclass(frozen=True)
class Rollout:
    """Completions of a batch of prompts, and what PPO computes from them.

    All tensors have one row per completion. Those marked (rows, tokens) hold the completion's
    tokens, padded on the right; prompts are padded on the left."""

    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    completion_ids: torch.Tensor
    completion_mask: torch.Tensor
    """(rows, tokens), true up to and including the first EOS."""
    raw_scores: torch.Tensor | None = None
    """(rows,), the scorer's score of each completion."""
    scores: torch.Tensor | None = None
    """(rows,), `raw_scores` minus the penalty for completions without EOS."""
    logprobs: torch.Tensor | None = None
    """(rows, tokens), of the policy that sampled."""
    reference_logprobs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    """(rows, tokens), of the policy that sampled, in nats."""
    values: torch.Tensor | None = None
    rewards: torch.Tensor | None = None
    """(rows, tokens), the KL penalty, plus the score at the last token."""
    advantages: torch.Tensor | None = None
    """(rows, tokens), whitened."""
    returns: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.completion_ids)

    def take(self, order: torch.Tensor) -> Rollout:
        """Return the rows of `order`."""
        return Rollout(**{name: value[order] for name, value in self.tensors().items()})

    def with_(self, **found: torch.Tensor) -> Rollout:
        """Return a copy with these tensors."""
        return replace(self, **found)

    def trimmed(self) -> Rollout:
        """Return a copy without columns that are padding in every row."""
        prompt = int(self.prompt_mask.sum(dim=1).max())
        length = int(self.completion_mask.sum(dim=1).max())
        prompts = ("prompt_ids", "prompt_mask")

        def cut(name: str, value: torch.Tensor) -> torch.Tensor:
            if name in prompts:
                return value[:, -prompt:]
            return value if value.dim() == 1 else value[:, :length]

        return Rollout(**{name: cut(name, value) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that are set, by name."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in named if value is not None}

    def ended(self, eos_id: int | None) -> torch.Tensor:
        """Return (rows,): whether a completion ended with EOS."""
        if eos_id is None:
            return torch.zeros(len(self), dtype=torch.bool, device=self.completion_ids.device)
        return (self.completion_ids.eq(eos_id) & self.completion_mask).any(dim=1)

    @property
    def input_ids(self) -> torch.Tensor:
        """(rows, prompt + completion)."""
        return torch.cat([self.prompt_ids, self.completion_ids], dim=1)

    @property
    def attention_mask(self) -> torch.Tensor:
        """(rows, prompt + completion); tokens after EOS are masked."""
        return torch.cat([self.prompt_mask, self.completion_mask.to(self.prompt_mask)], dim=1)


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled: with a temperature, but without top-k or top-p."""

    max_new_tokens: int
    temperature: float
    eos_id: int | None
    pad_id: int
    fixed_length: bool = False
    """No completion ends before `max_new_tokens`."""
    rows_at_once: int | None = None
    """How many prompts are sampled together; None: all."""
    width: int | None = None
    """Completions are padded to this many tokens; None: to the longest."""
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of `generate`, for the cache and compilation."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `generate`."""
        shortest = {"min_new_tokens": self.max_new_tokens} if self.fixed_length else {}
        return {
            "max_new_tokens": self.max_new_tokens,
            "do_sample": True,
            "temperature": self.temperature,
            "top_k": 0,
            "top_p": 1.0,
            "eos_token_id": self.eos_id,
            "pad_token_id": self.pad_id,
            **shortest,
            **dict(self.options),
        }


def sample(policy: Any, prompts: Prompts, sampling: Sampling) -> Rollout:
    """Sample one completion for each prompt."""
    found = []
    at_once = sampling.rows_at_once or len(prompts.ids)
    for start in range(0, len(prompts.ids), at_once):
        rows = slice(start, start + at_once)
        ids, mask = prompts.ids[rows], prompts.mask[rows]
        if sampling.width is None:
            most = int(mask.sum(dim=1).max())
            ids, mask = ids[:, -most:], mask[:, -most:]
        with torch.no_grad():
            sequences = policy.generate(input_ids=ids, attention_mask=mask, **sampling.arguments())
        found.append(sequences[:, ids.shape[1] :])
    width = sampling.width or max(each.shape[1] for each in found)
    # A batch is shorter if all its rows ended early.
    pad = functools.partial(torch.nn.functional.pad, value=sampling.pad_id)
    completions = torch.cat([pad(each, (0, width - each.shape[1])) for each in found])
    kept = completion_mask(completions, sampling.eos_id)
    return Rollout(prompts.ids, prompts.mask, completions.masked_fill(~kept, sampling.pad_id), kept)


@dataclass(frozen=True)
class Splitter:
    """Sizes are in completions. `bucketed`: sort the rows of a mini-batch by length, so that its
    micro-batches have little padding; the mini-batch stays the same."""

    mini_batch: int
    micro_batch: int
    bucketed: bool = False

    def of(self, rollout: Rollout, order: torch.Tensor | None = None) -> list[list[torch.Tensor]]:
        """Return each mini-batch's rows per micro-batch, in the rollout's order or in `order`."""
        device = rollout.completion_ids.device
        rows = torch.arange(len(rollout)) if order is None else order
        lengths = rollout.attention_mask.sum(dim=1).cpu() if self.bucketed else None
        found = []
        for mini in rows.split(self.mini_batch):
            if lengths is not None:
                mini = mini[lengths[mini].argsort(descending=True, stable=True)]
            found.append([micro.to(device) for micro in mini.split(self.micro_batch)])
        return found
