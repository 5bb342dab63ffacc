"""Reward functions of the user's own, sync or async, whose answers are checked."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from canary.errors import ConfigError, RunFailed
from canary.training.plugins import NamedCall, call_async, load_callable

if TYPE_CHECKING:
    from canary.protocol.spec import WorkloadSpec

LARGEST = 3.4028234663852886e38
"""Of float32, which rewards become."""
SHOWN = 100
"""Characters of a completion in an error."""


class NamedReward(NamedCall):
    """A reward function whose answer is checked: one finite number, or None, a completion.

    A NaN is refused and no abstention: trl would take it for None, and a reward that cannot be
    computed any more would pass for one that has nothing to say.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._checked(super().__call__(*args, **kwargs), args, kwargs)

    async def awaited(self, *args: Any, **kwargs: Any) -> Any:
        """The same, of an async function."""
        answer = await call_async(RunFailed, self.key, self.path, self.function, *args, **kwargs)
        return self._checked(answer, args, kwargs)

    def _checked(self, rewards: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        completions = kwargs.get("completions", args[1] if len(args) > 1 else ())
        try:
            values = list(rewards)
            wrong = next((v for v in values if v is not None and not _is_number(v)), None)
        except TypeError:
            values, wrong = [], rewards
        if wrong is not None or rewards is None:
            raise self._refused(f"returned {type(wrong).__name__} where a number belongs")
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
        return ConfigError(
            f"{self.key} '{self.path}' {what}",
            "return a list with one finite number, or None, for each completion",
            key=self.key,
        )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str)


def _shown(completion: Any) -> str:
    """The beginning of a completion, on one line."""
    text = repr(completion)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def reward_functions(spec: WorkloadSpec) -> list[Callable[..., Any]]:
    """The config's reward functions in order, each checked; empty where it names none."""
    key = "reward_functions"
    found = [
        NamedReward(key, path, load_callable(key, path)) for path in spec.config.reward_functions
    ]
    return [_coroutine_of(named) if _is_async(named.function) else named for named in found]


def _is_async(function: Any) -> bool:
    """Whether its answer is to be awaited; an instance has that from its `__call__`."""
    call = None if inspect.isclass(function) else type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _coroutine_of(named: NamedReward) -> Callable[..., Any]:
    """An async function of the same name: trl tells them by the kind of the function itself."""

    @functools.wraps(named.function)
    async def reward(*args: Any, **kwargs: Any) -> Any:
        return await named.awaited(*args, **kwargs)

    reward.__name__ = named.__name__
    reward.function = named.function  # type: ignore[attr-defined]
    return reward
