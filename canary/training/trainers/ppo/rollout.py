"""Rollouts: prompts as the policy reads them, completions it samples, and what is known of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from canary.training.trainers.ppo.objective import completion_mask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Row = dict[str, Any]


def prompt_text(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> str:
    """The prompt as text; conversations through the chat template, up to the answer's beginning."""
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return prompt
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    return str(text)


def prompt_ids(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Token ids of the prompt; a chat template brings its special tokens along."""
    bare = not isinstance(row["prompt"], str)
    text = prompt_text(row, tokenizer)
    ids: list[int] = tokenizer(text, add_special_tokens=not bare)["input_ids"]
    return ids


@dataclass(frozen=True)
class Prompts:
    """Prompts padded on the left: `ids` and `mask` (rows, tokens), and the rows they come from."""

    ids: torch.Tensor
    mask: torch.Tensor
    rows: tuple[Row, ...]


class PromptCollator:
    """Rows of the data as one batch of prompts; runs in the processes that load data.

    `width`: pad to so many tokens; None: to the longest of the batch.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, width: int | None) -> None:
        self._tokenizer = tokenizer
        self._width = width

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """`{ids, mask, rows}`, see `Prompts`."""
        found = [prompt_ids(row, self._tokenizer) for row in rows]
        width = self._width or max(map(len, found))
        pad = self._tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(each)) + each for each in found])
        mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in found])
        return {"ids": ids, "mask": mask, "rows": [dict(row) for row in rows]}


@dataclass(frozen=True)
class Rollout:
    """Completions of a batch of prompts, and what PPO makes of them. All tensors have a row a
    completion; those marked (rows, tokens) are over the completion's tokens and padded on the
    right; prompts are padded on the left."""

    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    completion_ids: torch.Tensor
    completion_mask: torch.Tensor
    """(rows, tokens), true up to and with the first EOS."""
    raw_scores: torch.Tensor | None = None
    """(rows,), what the reward says of each completion."""
    scores: torch.Tensor | None = None
    """(rows,), less the penalty where a completion has no end."""
    logprobs: torch.Tensor | None = None
    """(rows, tokens), of the policy that sampled."""
    reference_logprobs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    """(rows, tokens), of the policy that sampled, nats."""
    values: torch.Tensor | None = None
    rewards: torch.Tensor | None = None
    """(rows, tokens), the penalty on the KL and, at the last token, the score."""
    advantages: torch.Tensor | None = None
    """(rows, tokens), whitened."""
    returns: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.completion_ids)

    def take(self, order: torch.Tensor) -> Rollout:
        """The rows of `order`."""
        return self._each(lambda value: value[order])

    def with_(self, **found: torch.Tensor) -> Rollout:
        """With more known of it."""
        return replace(self, **found)

    def trimmed(self) -> Rollout:
        """Without columns that are padding in every row."""
        prompt = int(self.prompt_mask.sum(dim=1).max())
        length = int(self.completion_mask.sum(dim=1).max())
        prompts = ("prompt_ids", "prompt_mask")

        def cut(name: str, value: torch.Tensor) -> torch.Tensor:
            if name in prompts:
                return value[:, -prompt:]
            return value if value.dim() == 1 else value[:, :length]

        return Rollout(**{name: cut(name, value) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, torch.Tensor]:
        """What is known, by name."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in named if value is not None}

    def _each(self, change: Any) -> Rollout:
        return Rollout(**{name: change(value) for name, value in self.tensors().items()})

    def ended(self, eos_id: int | None) -> torch.Tensor:
        """(rows,), whether a completion came to its own end."""
        if eos_id is None:
            return torch.zeros(len(self), dtype=torch.bool, device=self.completion_ids.device)
        return (self.completion_ids.eq(eos_id) & self.completion_mask).any(dim=1)

    @property
    def input_ids(self) -> torch.Tensor:
        """(rows, prompt + completion)."""
        return torch.cat([self.prompt_ids, self.completion_ids], dim=1)

    @property
    def attention_mask(self) -> torch.Tensor:
        """(rows, prompt + completion); what follows an EOS is not attended to."""
        return torch.cat([self.prompt_mask, self.completion_mask.to(self.prompt_mask)], dim=1)


def micro_batches(rows: int, size: int) -> Iterator[slice]:
    """Slices of `size` rows, the last of what is left."""
    return (slice(start, start + size) for start in range(0, rows, size))


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled: from the policy's own distribution at a temperature, with
    nothing cut off it."""

    max_new_tokens: int
    temperature: float
    eos_id: int | None
    pad_id: int
    fixed_length: bool = False
    """No completion ends before `max_new_tokens`."""
    rows_at_once: int | None = None
    """Prompts that are sampled together; None: all."""
    width: int | None = None
    """Completions are padded to so many tokens; None: to the longest."""
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of `generate`: the cache."""

    def arguments(self) -> dict[str, Any]:
        """Of `generate`."""
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
    """Samples a completion of each prompt."""
    found = []
    for rows in micro_batches(len(prompts.ids), sampling.rows_at_once or len(prompts.ids)):
        ids, mask = prompts.ids[rows], prompts.mask[rows]
        if sampling.width is None:
            most = int(mask.sum(dim=1).max())
            ids, mask = ids[:, -most:], mask[:, -most:]
        with torch.no_grad():
            sequences = policy.generate(input_ids=ids, attention_mask=mask, **sampling.arguments())
        found.append(sequences[:, ids.shape[1] :])
    width = sampling.width or max(each.shape[1] for each in found)
    completions = torch.cat([_padded(each, width, sampling.pad_id) for each in found])
    kept = completion_mask(completions, sampling.eos_id)
    return Rollout(prompts.ids, prompts.mask, completions.masked_fill(~kept, sampling.pad_id), kept)


def _padded(ids: torch.Tensor, width: int, pad_id: int) -> torch.Tensor:
    """Filled up on the right. Shorter than `width` are batches in which all rows had ended."""
    return torch.nn.functional.pad(ids, (0, width - ids.shape[1]), value=pad_id)
