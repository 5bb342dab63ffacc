"""Time for several threads that write at once: it moves on when all of them wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tests.github.state import Clock

Done = TypeVar("Done")


class Turns:
    """Threads that sleep by GitHub's clock; a request that is held sleeps for its thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = threading.Condition()
        self._awake = 0
        self._sleepers: list[tuple[float, threading.Event]] = []

    def sleep(self, seconds: float) -> None:
        """Until so many seconds later, when nobody is awake who could do something before."""
        event = threading.Event()
        with self._turn:
            self._sleepers.append((self._clock.time() + seconds, event))
            self._awake -= 1
            self._wake()
        event.wait()

    def run(self, *deeds: Callable[[], Done]) -> list[Done]:
        """Runs them side by side; `clock.sleep` is this object's meanwhile."""
        self._awake = len(deeds)
        usual, self._clock.sleep = self._clock.sleep, self.sleep  # type: ignore[method-assign]
        try:
            with ThreadPoolExecutor(len(deeds)) as pool:
                return list(pool.map(self._one, deeds))
        finally:
            self._clock.sleep = usual  # type: ignore[method-assign]

    def _one(self, deed: Callable[[], Done]) -> Done:
        try:
            return deed()
        finally:
            with self._turn:
                self._awake -= 1
                self._wake()

    def _wake(self) -> None:
        if self._awake or not self._sleepers:
            return
        now = min(at for at, _ in self._sleepers)
        self._clock.advance(max(0.0, now - self._clock.time()))
        for one in [one for one in self._sleepers if one[0] <= now]:
            self._sleepers.remove(one)
            self._awake += 1
            one[1].set()
