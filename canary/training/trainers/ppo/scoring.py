"""Score PPO's completions with reward functions or with a frozen reward model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from canary.training.trainers.ppo.reward_model import load_reward_model
from canary.training.trainers.rewards import rewards_for

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from canary.protocol.spec import WorkloadSpec
    from canary.training.trainers.ppo.rollout import Rollout

Prompt = str | list[dict[str, Any]]


@dataclass(frozen=True)
class Samples:
    """Completions to be scored, one per row of the data; `completions` are their texts without
    special tokens."""

    rows: Sequence[Mapping[str, Any]]
    completions: Sequence[str]
    rollout: Rollout

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts as the data has them."""
        return [row["prompt"] for row in self.rows]

    def prompt_tokens(self) -> list[list[int]]:
        """Return the ids of each prompt, without padding."""
        return _unmasked(self.rollout.prompt_ids, self.rollout.prompt_mask)

    def completion_tokens(self) -> list[list[int]]:
        """Return the ids of each completion, without padding."""
        return _unmasked(self.rollout.completion_ids, self.rollout.completion_mask)


def _unmasked(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    """Return each row's ids whose mask is not 0."""
    rows = zip(ids.tolist(), mask.tolist(), strict=True)
    return [[token for token, keep in zip(*row, strict=True) if keep] for row in rows]


class Scorer(Protocol):
    """Returns one number per completion, float32 (rows,), on the device of the ids."""

    def score(self, samples: Samples) -> torch.Tensor: ...


def build_scorer(
    spec: WorkloadSpec,
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
) -> Scorer:
    """Return the config's `ppo.reward_model` as scorer, or else the reward functions.

    Raises InputError if it cannot be loaded or the data lacks a column that it reads.
    """
    name = spec.config.ppo.reward_model if spec.config.ppo is not None else None
    if name is None:
        return RewardFunctions(rewards_for(spec, rows), spec.notes)
    return load_reward_model(spec, name, tokenizer, device)


class RewardFunctions:
    """Sums reward functions, called as trl calls them. A function that returns None abstains.

    A completion scores 0 if all functions abstain; `notes` says so once. A NaN score stays NaN, so
    that the checks see it.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], notes: list[str] | None = None
    ) -> None:
        self.functions = functions
        self._notes = notes
        self._noted = False

    def score(self, samples: Samples) -> torch.Tensor:
        """Return the sum of the functions' rewards, float32 (rows,)."""
        names = (name for name in samples.rows[0] if name != "prompt")
        arguments = {
            **{name: [row[name] for row in samples.rows] for name in names},
            "prompts": samples.prompts,
            "completions": _as_prompted(samples),
            "completion_ids": samples.completion_tokens(),
        }
        columns = [_called(function, arguments) for function in self.functions]
        rewards = [[float(r) for r in row if r is not None] for row in zip(*columns, strict=True)]
        self._note_abstentions([not row for row in rewards], samples.completions)
        device = samples.rollout.completion_ids.device
        return torch.tensor([sum(row) for row in rewards], dtype=torch.float32, device=device)

    def _note_abstentions(self, abstained: Sequence[bool], completions: Sequence[str]) -> None:
        if self._notes is None or self._noted or not any(abstained):
            return
        self._noted = True
        first = completions[abstained.index(True)]
        self._notes.append(
            "completions score 0 if every reward function abstains: "
            f"{sum(abstained)} of {len(abstained)} in the first such step, for example {first!r}"
        )


def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> list[float | None]:
    """Return a reward, or None, for each completion: `NamedReward` has checked them."""
    answer = function(**arguments)
    return list(asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer)


async def _awaited(answer: Any) -> Any:
    return await answer


def _as_prompted(samples: Samples) -> list[str] | list[list[dict[str, str]]]:
    """Return the completions in the form of their prompts: texts, or lists of one message."""
    if isinstance(samples.rows[0]["prompt"], str):
        return list(samples.completions)
    return [[{"role": "assistant", "content": text}] for text in samples.completions]
