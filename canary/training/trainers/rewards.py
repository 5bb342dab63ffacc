"""The rewards of online trainers: a built-in score, or the user's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset

from canary.errors import InputError
from canary.inputs.embedded import EMBEDDED_DATA
from canary.inputs.embedded.tasks import score
from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.user_rewards import reward_functions

Completion = str | list[dict[str, Any]]
Reward = Callable[..., list[float | None]]

CONTAINED_REWARD = 0.5


def rewards_for(spec: WorkloadSpec, rows: Dataset) -> list[Reward]:
    """Return the config's `reward_functions`. Without any: the score of the embedded tasks, or for
    other data the match with their `answer` column."""
    functions: list[Reward] = reward_functions(spec)
    if functions:
        return functions
    name = spec.config.dataset_name
    if "answer" not in rows.column_names:
        trainer = spec.config.training_type.upper()
        raise InputError(
            f"dataset '{name}' has no 'answer' column, but the {trainer} reward needs one",
            "add a column 'answer' with the correct completion, or set reward_functions",
        )
    return [task_reward if name == EMBEDDED_DATA else match_reward]


def task_reward(
    completions: list[Completion], answer: list[str], **_columns: Any
) -> list[float | None]:
    """Return a score in [0, 1] per completion, by the rules of the embedded tasks."""
    pairs = zip(completions, answer, strict=True)
    return [score(completion_text(completion), right) for completion, right in pairs]


def match_reward(
    completions: list[Completion], answer: list[object], **_columns: Any
) -> list[float | None]:
    """Return 1 if the completion is the answer, CONTAINED_REWARD if it contains it, else 0."""
    pairs = zip(completions, answer, strict=True)
    return [
        _match(completion_text(completion).strip(), str(right).strip())
        for completion, right in pairs
    ]


def _match(text: str, right: str) -> float:
    if text == right:
        return 1.0
    return CONTAINED_REWARD if right and right in text else 0.0


def completion_text(completion: Completion) -> str:
    """Return the text of a completion, plain or conversational."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message["content"]) for message in completion)
