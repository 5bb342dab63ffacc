"""The rewards of online trainers: a built-in score, or the user's functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from canary.errors import ConfigError, InputError, RunFailed
from canary.inputs.embedded import EMBEDDED_DATA
from canary.inputs.embedded.scoring import score
from canary.training.plugins import NamedCall, explained, load_callable, refused

if TYPE_CHECKING:
    from canary.protocol.spec import WorkloadSpec

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
    found: list[float | None] = []
    for completion, right in zip(completions, answer, strict=True):
        text, wanted = completion_text(completion).strip(), str(right).strip()
        contained = CONTAINED_REWARD if wanted and wanted in text else 0.0
        found.append(1.0 if text == wanted else contained)
    return found


def completion_text(completion: Completion) -> str:
    """Return the text of a completion, plain or conversational."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message["content"]) for message in completion)


LARGEST = 3.4028234663852886e38
"""The largest float32: rewards become float32."""
SHOWN = 100
"""Characters of a completion that an error shows."""


class NamedReward(NamedCall):
    """A reward function that must return one finite number, or None, per completion.

    NaN is an error: trl treats it as None, so a broken reward would look like an abstention.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._checked(super().__call__(*args, **kwargs), args, kwargs)

    async def awaited(self, *args: Any, **kwargs: Any) -> Any:
        """Call an async function and check what it returns."""
        with explained(RunFailed, self.key, self.path):
            answer = await self.function(*args, **kwargs)
        return self._checked(answer, args, kwargs)

    def _checked(self, rewards: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        completions = kwargs.get("completions", args[1] if len(args) > 1 else ())
        try:
            values = list(rewards)
            wrong = next((v for v in values if v is not None and not _is_number(v)), None)
        except TypeError:
            values, wrong = [], rewards
        if wrong is not None or rewards is None:
            raise self._refused(f"returned {type(wrong).__name__} instead of a number")
        if len(values) != len(completions):
            raise self._refused(
                f"returned {len(values)} rewards for {len(completions)} completions"
            )
        for place, value in enumerate(values):
            if value is not None and not abs(float(value)) <= LARGEST:
                raise self._refused(
                    f"returned {float(value):.6g} for completion {place + 1} of {len(values)}, "
                    f"{_shown(completions[place])}"
                )
        return values

    def _refused(self, what: str) -> ConfigError:
        hint = "return a list with one finite number, or None, for each completion"
        return refused(self.key, self.path, what, hint)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str)


def _shown(completion: Any) -> str:
    """Return the beginning of a completion, on one line."""
    text = repr(completion)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def reward_functions(spec: WorkloadSpec) -> list[Callable[..., Any]]:
    """Return the config's reward functions in order, each with a check; empty if it names none."""
    key = "reward_functions"
    found = [
        NamedReward(key, path, load_callable(key, path)) for path in spec.config.reward_functions
    ]
    return [_coroutine_of(named) if _is_async(named.function) else named for named in found]


def _is_async(function: Any) -> bool:
    """Return whether the result must be awaited; for an instance, its `__call__` decides."""
    call = None if inspect.isclass(function) else type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _coroutine_of(named: NamedReward) -> Callable[..., Any]:
    """Return an async function of the same name: trl checks whether the function is async."""

    @functools.wraps(named.function)
    async def reward(*args: Any, **kwargs: Any) -> Any:
        return await named.awaited(*args, **kwargs)

    reward.__name__ = named.__name__
    reward.function = named.function  # type: ignore[attr-defined]
    return reward
