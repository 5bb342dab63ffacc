"""What a loop reports of its sampler: `canary.sampled`, `canary.engine_weights`,
`canary.reward_function`.

Without a `canary check` that asks, they do nothing and import nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Listener(Protocol):
    """What asks, inside the training process."""

    def sampled(
        self,
        ids: Any,
        log_probs: Any,
        prompt_lengths: Any,
        mask: Any,
        temperature: float | None,
    ) -> None:
        """Take sampled sequences."""

    def engine_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Take the engine's weights."""

    def rewarded(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a reward function, and ask it again."""


_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Set what gets the reports of this process."""
    global _listener
    _listener = listener


def sampled(
    ids: Any,
    log_probs: Any,
    prompt_lengths: int | Sequence[int] | None = None,
    mask: Any = None,
    temperature: float | None = None,
) -> None:
    """Report sequences that an engine sampled, when they arrive and before they are trained on.

    Args:
        ids: token ids of prompt and completion, (rows, tokens): a tensor, an array or lists.
        log_probs: the engine's log-probability of each sampled token, one list per row; or of the
            shape of `ids`, where the entries of the prompt are ignored.
        prompt_lengths: tokens of the prompt, without padding; one for all rows, or one per row.
            Without it, all tokens count as prompt but the last ones, as many as `log_probs` has.
        mask: 1 where `ids` is a real token, 0 at padding; without it all are real.
        temperature: of the sampling, for the message only.

    Raises:
        UsageError: rows and log-probabilities do not fit, and a `canary check` asks.
    """
    if _listener is not None:
        _listener.sampled(ids, log_probs, prompt_lengths, mask, temperature)


def engine_weights(weights: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
    """Report the weights that an engine holds, after they were sent to it.

    Args:
        weights: a state dict, or pairs of name and tensor. A string is the SHA-256, in hexadecimal,
            of the bytes of the contiguous tensor.

    Raises:
        UsageError: a weight is neither, and a `canary check` asks.
    """
    if _listener is not None:
        pairs = weights.items() if isinstance(weights, Mapping) else weights
        _listener.engine_weights(pairs)


def reward_function(function: Function) -> Function:
    """Return the function, which `canary check` asks again about the same completions.

    Usable as a decorator. The function is not async and returns one reward per completion.
    Arguments that are lists, tuples or tensors of that length hold one entry per completion.
    """

    @functools.wraps(function)
    def rewarded(*args: Any, **kwargs: Any) -> Any:
        if _listener is None:
            return function(*args, **kwargs)
        return _listener.rewarded(function, args, kwargs)

    return rewarded  # type: ignore[return-value]
