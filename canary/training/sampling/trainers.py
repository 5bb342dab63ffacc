"""Where trainers of trl, and the canary's PPO, sample and reward."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import nn

GENERATE = "_generate_and_score_completions"
"""Of trl's GRPO and RLOO: returns the rollout as a dictionary."""
COLLECT = "_collect"
"""Of the canary's PPO: returns the rollout with the policy's log-probabilities."""


class Rewarded(Protocol):
    """Calls a reward function and asks it again."""

    def rewarded(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function."""

    async def awaited(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call an async function."""


def samples(trainer: Any) -> bool:
    """Whether a trainer trains on what it samples."""
    return hasattr(trainer, GENERATE) or _functions(trainer) is not None


def _functions(trainer: Any) -> list[Any] | None:
    scorer = getattr(trainer, "scorer", None)
    for owner, name in ((trainer, "reward_funcs"), (scorer, "functions")):
        found = getattr(owner, name, None)
        if isinstance(found, list):
            return found
    return None


def reward_models(trainer: Any) -> list[nn.Module]:
    """Return the models that reward completions."""
    found = [*(_functions(trainer) or ())]
    found.append(getattr(getattr(trainer, "scorer", None), "model", None))
    return [one for one in found if isinstance(one, nn.Module)]


def watch_rewards(trainer: Any, asks: Rewarded) -> None:
    """Replace the reward functions of a trainer by those that are asked again."""
    functions = _functions(trainer) or []
    for place, one in enumerate(functions):
        if callable(one) and not isinstance(one, nn.Module):
            functions[place] = _watched(one, asks)


def _watched(function: Callable[..., Any], asks: Rewarded) -> Callable[..., Any]:
    """Return the function, asked again after its first call. Trainers look whether it is async."""
    call = type(function).__call__
    watched: Any
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await asks.awaited(function, args, kwargs)

        watched = awaited
    else:

        @functools.wraps(function)
        def rewarded(*args: Any, **kwargs: Any) -> Any:
            return asks.rewarded(function, args, kwargs)

        watched = rewarded
    # The record names the user's code by this.
    watched.function = function
    return watched  # type: ignore[no-any-return]


def watch_rollouts(trainer: Any, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Call `take` with the tensors of each rollout."""
    for name in (GENERATE, COLLECT):
        original = getattr(trainer, name, None)
        if original is None:
            continue

        def around(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            result = _original(*args, **kwargs)
            rollout: Any = getattr(result, "rollout", None)
            if isinstance(result, Mapping):
                take(result)
            elif hasattr(rollout, "tensors"):
                take(rollout.tensors())
            return result

        setattr(trainer, name, functools.wraps(original)(around))
        return
