"""Server-sent events: what a page's watchers get. One rendering serves all who watch a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread

from canary.record import jsonio

ENDED = "ended"
"""The region of a page that must be loaded again."""
WAIT_S = 0.5
"""Seconds after which a stream looks whether the server ends."""
LEAST_S = 0.01
"""Least pause between two looks."""
PING_S = 15.0
"""Seconds after which a silent stream sends a comment, which finds connections that are gone."""


@dataclass(frozen=True)
class Look:
    """One way to find out what is new. It runs in a thread."""

    texts: Callable[[], dict[str, str]]
    every_s: float
    """Least seconds between two calls."""
    share: float = 1.0
    """Most of one core that the calls may take."""
    at_once: CapacityLimiter | None = None
    """How many of these calls may run at once."""


class Feed:
    """The newest text of each region of a page. It looks only while somebody watches."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self._looks = looks
        self._texts: dict[str, tuple[int, str]] = {}
        self._version = 0
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.watchers = 0

    def newest(self, region: str) -> str | None:
        """Return the newest text of a region; None while there is none."""
        known = self._texts.get(region)
        return None if known is None else known[1]

    async def events(self, is_over: Callable[[], bool]) -> AsyncGenerator[str, None]:
        """Yield events until `is_over`: at first all regions, then those that changed."""
        self.watchers += 1
        try:
            if not self._tasks:
                self._tasks = [asyncio.create_task(self._repeat(look)) for look in self._looks]
            seen, spoke = 0, time.monotonic()
            yield "retry: 1000\n\n"
            while not is_over():
                news = self._news
                self._raise_failures()
                found = [(n, name, text) for name, (n, text) in self._texts.items() if n > seen]
                for version, name, text in sorted(found):
                    seen, spoke = version, time.monotonic()
                    yield f"data: {jsonio.dumps({'region': name, 'html': text})}\n\n"
                if time.monotonic() - spoke > PING_S:
                    spoke = time.monotonic()
                    yield ":\n\n"
                await _either(news, WAIT_S)
        finally:
            self.watchers -= 1
            if not self.watchers:
                self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def _repeat(self, look: Look) -> None:
        while ENDED not in self._texts:
            start, used = time.monotonic(), time.process_time()
            texts = await to_thread.run_sync(look.texts, limiter=look.at_once)
            # A busy machine makes it last longer, but not cost more.
            used = time.process_time() - used
            for name, text in texts.items():
                if self._texts.get(name, (0, None))[1] != text:
                    self._version += 1
                    self._texts[name] = (self._version, text)
            old, self._news = self._news, asyncio.Event()
            old.set()
            due = start + max(look.every_s, used / look.share)
            await asyncio.sleep(max(LEAST_S, due - time.monotonic()))


async def _either(news: asyncio.Event, seconds: float) -> None:
    """Wait for news, at most so many seconds."""
    try:
        await asyncio.wait_for(news.wait(), seconds)
    except TimeoutError:
        return
