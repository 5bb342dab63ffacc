"""What scores PPO's completions: reward functions, or a reward model that stays as it is."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from canary.errors import InputError
from canary.training.trainers.ppo.reward_model import load_reward_model
from canary.training.trainers.rewards import rewards_for

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from canary.protocol.spec import WorkloadSpec

Prompt = str | list[dict[str, Any]]


@dataclass(frozen=True)
class Samples:
    """Completions to be scored, one a row.

    `completions` are their texts without special tokens. The ids are int64 (rows, length), padded
    on either side; the masks, of the same shapes, are 1 where a token counts: those of a prompt,
    and those of a completion up to its first EOS, EOS included. `columns` are the columns of the
    data beside `prompt`, a value a row.
    """

    prompts: Sequence[Prompt]
    completions: Sequence[str]
    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    completion_ids: torch.Tensor
    completion_mask: torch.Tensor
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of_rows(
        cls, rows: Sequence[Mapping[str, Any]], texts: Sequence[str], **tensors: torch.Tensor
    ) -> Samples:
        """Of rows of the data, with the texts that answer them, and ids and masks by name."""
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        return cls([row["prompt"] for row in rows], texts, columns=columns, **tensors)

    def prompt_tokens(self) -> list[list[int]]:
        """The ids of each prompt, without padding."""
        return _counting(self.prompt_ids, self.prompt_mask)

    def completion_tokens(self) -> list[list[int]]:
        """The ids of each completion, without padding."""
        return _counting(self.completion_ids, self.completion_mask)


def _counting(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    """The ids whose mask is not 0, row by row."""
    rows = zip(ids.tolist(), mask.tolist(), strict=True)
    return [[token for token, counts in zip(*row, strict=True) if counts] for row in rows]


class Scorer(Protocol):
    """Gives each completion one number, float32 (rows,), on the device of the ids."""

    def score(self, samples: Samples) -> torch.Tensor: ...


def build_scorer(
    spec: WorkloadSpec,
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
) -> Scorer:
    """The scorer that the config's `ppo.reward_model` names; without one, the reward functions.

    Raises InputError where it cannot be had or the data lacks the column that it reads.
    """
    name = spec.config.ppo.reward_model if spec.config.ppo is not None else None
    if name is None:
        return RewardFunctions(rewards_for(spec, rows), spec.notes)
    return load_reward_model(spec, name, tokenizer, device)


class RewardFunctions:
    """The sum of functions as trl calls them; one that gives None for a completion abstains.

    A completion for which all abstain scores 0, and `notes` says so once. A score that is no number
    stays one, so that it is seen.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], notes: list[str] | None = None
    ) -> None:
        self.functions = functions
        self._notes = notes
        self._told = False

    def score(self, samples: Samples) -> torch.Tensor:
        """The sum of the functions' rewards, float32 (rows,).

        Raises InputError where a function gives another number of them.
        """
        arguments = {
            **{name: list(values) for name, values in samples.columns.items()},
            "prompts": list(samples.prompts),
            "completions": _as_prompted(samples),
            "completion_ids": samples.completion_tokens(),
        }
        columns = [_called(function, arguments) for function in self.functions]
        said = [[float(r) for r in row if r is not None] for row in zip(*columns, strict=True)]
        self._tell_of_silence([not row for row in said], samples.completions)
        device = samples.completion_ids.device
        return torch.tensor([sum(row) for row in said], dtype=torch.float32, device=device)

    def _tell_of_silence(self, silent: Sequence[bool], completions: Sequence[str]) -> None:
        if self._notes is None or self._told or not any(silent):
            return
        self._told = True
        self._notes.append(
            f"completions score 0 for which every reward function abstained: {sum(silent)} of "
            f"{len(silent)} in the first such step, among them {completions[silent.index(True)]!r}"
        )


def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> list[float | None]:
    answer = function(**arguments)
    answer = asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer
    found = list(answer) if isinstance(answer, Iterable) else [answer]
    wanted = len(arguments["completions"])
    if len(found) != wanted or not isinstance(answer, Iterable):
        name = getattr(function, "__name__", type(function).__name__)
        given = f"{len(found)} rewards" if isinstance(answer, Iterable) else repr(answer)
        raise InputError(
            f"reward function '{name}' gave {given} for {wanted} completions",
            "give a list with a number, or None, for each",
        )
    return found


async def _awaited(answer: Any) -> Any:
    return await answer


def _as_prompted(samples: Samples) -> list[str] | list[list[dict[str, str]]]:
    """Completions in the form of their prompts: texts, or lists of one message."""
    if not samples.prompts or isinstance(samples.prompts[0], str):
        return list(samples.completions)
    return [[{"role": "assistant", "content": text}] for text in samples.completions]
