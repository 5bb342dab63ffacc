"""The closure given to an optimizer's step. It computes the loss, maybe several times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepArguments:
    """The arguments of an optimizer's step, with the optimizer first."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def closure(self) -> Callable[..., Any] | None:
        """The closure, None without one."""
        named = self.kwargs.get("closure")
        if named is not None:
            return named  # type: ignore[no-any-return]
        return self.args[1] if len(self.args) > 1 and callable(self.args[1]) else None

    def watched(
        self, begins: Callable[[], Any], ended: Callable[[], Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments with a closure that calls `begins` and `ended` around its call."""
        given = self.closure
        assert given is not None

        @functools.wraps(given)
        def closure(*args: Any, **kwargs: Any) -> Any:
            begins()
            loss = given(*args, **kwargs)
            ended()
            return loss

        if self.kwargs.get("closure") is not None:
            return self.args, {**self.kwargs, "closure": closure}
        return (self.args[0], closure, *self.args[2:]), self.kwargs
