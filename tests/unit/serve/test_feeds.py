"""Streams: one rendering for all watchers, none without, and only what changed."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable

import pytest

from canary.serve.feeds import Feed, Look


class Counter:
    """A look that counts its calls."""

    def __init__(self, limit: int = 10**9) -> None:
        self.calls = 0
        self.limit = limit

    def __call__(self) -> dict[str, str]:
        self.calls += 1
        return {"same": "always", "count": str(min(self.calls, self.limit))}


async def collected(feed: Feed, is_over: Callable[[], bool]) -> list[tuple[str, str]]:
    """The regions and texts that one watcher gets."""
    found = []
    async for event in feed.events(is_over):
        if event.startswith("data: "):
            news = json.loads(event.removeprefix("data: "))
            found.append((news["region"], news["html"]))
    return found


def test_all_watchers_share_one_rendering_and_get_changes_only() -> None:
    look = Counter(limit=3)

    async def watch() -> list[list[tuple[str, str]]]:
        feed = Feed([Look(look, 0.01)])
        return await asyncio.gather(*(collected(feed, lambda: look.calls >= 6) for _ in range(5)))

    for found in asyncio.run(watch()):
        assert [text for region, text in found if region == "same"] == ["always"]
        counts = [int(text) for region, text in found if region == "count"]
        assert counts == sorted(set(counts))
        assert counts[-1] == 3
    assert look.calls <= 60


def test_it_looks_only_while_somebody_watches() -> None:
    look = Counter()

    async def watch() -> tuple[int, int]:
        feed = Feed([Look(look, 0.01)])
        await asyncio.sleep(0.05)
        assert look.calls == 0
        await collected(feed, lambda: look.calls >= 2)
        await asyncio.sleep(0.05)
        before = look.calls
        await asyncio.sleep(0.1)
        return before, look.calls

    before, after = asyncio.run(watch())
    assert before == after


def test_slow_looks_take_no_more_than_their_share() -> None:
    calls = []

    def slow() -> dict[str, str]:
        calls.append(time.monotonic())
        start = time.process_time()
        while time.process_time() - start < 0.05:
            pass
        return {"x": str(len(calls))}

    async def watch() -> None:
        await collected(Feed([Look(slow, 0.0, share=0.25)]), lambda: len(calls) >= 4)

    asyncio.run(watch())
    pauses = [after - before for before, after in itertools.pairwise(calls)]
    assert min(pauses) >= 0.19


def test_a_look_that_fails_ends_the_stream() -> None:
    def broken() -> dict[str, str]:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(collected(Feed([Look(broken, 0.01)]), lambda: False))
