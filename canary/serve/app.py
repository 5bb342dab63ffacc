"""The server's addresses. Pages are made in threads, so that no stream of events waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from canary.errors import CanaryError, InputError
from canary.record.strangers import seen_record
from canary.report.html import asset
from canary.serve import live
from canary.serve.feeds import Feed, Look
from canary.serve.following import UNREADABLE, Following
from canary.serve.guard import Entrance, Guard
from canary.serve.pages import NoSuchPage, Site, message

WORDS_EVERY_S, RUNS_EVERY_S, CHARTS_EVERY_S = 0.5, 1.0, 2.0
CHARTS_SHARE = 0.2
"""Most of a core that the charts of one page may take while they grow."""
MOST_STREAMS = 32
KEPT_S = 10.0
"""Seconds for which a run's rows are kept for the stream that its page opens."""
ASSETS = {
    "/style.css": ("text/css", ("report.css", "served.css")),
    "/report.js": ("text/javascript", ("report.js",)),
    "/live.js": ("text/javascript", ("live.js",)),
}


class Shown:
    """The pages of a site, and the streams of those that grow."""

    def __init__(self, site: Site, is_ending: Callable[[], bool]) -> None:
        self.site = site
        self._is_ending = is_ending
        self._drawing = CapacityLimiter(1)
        self._following: dict[str, Following] = {}
        self._feeds: dict[str, Feed] = {}

    async def runs(self, request: Request) -> Response:
        """All runs."""
        return await self._page(self.site.runs, draws=False)

    async def run(self, request: Request) -> Response:
        """One run: its report, or a page that grows while it goes on."""
        name = request.path_params["name"]
        answer = await self._page(partial(self._run, name))
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, name)
        return answer

    async def compare(self, request: Request) -> Response:
        """Two runs compared."""
        query = request.query_params
        names = query.get("current", ""), query.get("baseline", "")
        return await self._page(partial(self.site.comparison, *names))

    async def history(self, request: Request) -> Response:
        """A history."""
        query = request.query_params
        wanted = query.get("name"), query.get("canary")
        return await self._page(partial(self.site.history_text, *wanted))

    async def campaign(self, request: Request) -> Response:
        """The comparisons of a campaign."""
        return await self._page(partial(self.site.campaign, request.path_params["name"]))

    async def runs_events(self, request: Request) -> Response:
        """What is new in the list of runs."""
        return self._stream("", [Look(self.site.runs_texts, RUNS_EVERY_S)])

    async def run_events(self, request: Request) -> Response:
        """What is new in one run."""
        name = request.path_params["name"]
        try:
            following = await to_thread.run_sync(self._followed, name)
        except InputError as error:
            return PlainTextResponse(f"{error}\n", 404)
        words = Look(partial(live.news, following), WORDS_EVERY_S)
        charts = partial(live.charts, following)
        drawn = Look(charts, CHARTS_EVERY_S, CHARTS_SHARE, self._drawing)
        return self._stream(name, [words, drawn])

    async def asset(self, request: Request) -> Response:
        """A style sheet or a script."""
        kind, names = ASSETS[request.url.path]
        return Response("".join(map(asset, names)), media_type=kind)

    async def unknown(self, request: Request, error: Exception) -> Response:
        """No page has this address."""
        return HTMLResponse(message("no such page", "go back to the list of runs"), 404)

    async def _page(self, make: Callable[[], str], *, draws: bool = True) -> Response:
        """Make a page in a thread; an error that a user can cause becomes one too."""
        limiter = self._drawing if draws else None
        try:
            return HTMLResponse(await to_thread.run_sync(make, limiter=limiter))
        except NoSuchPage as error:
            return HTMLResponse(message(error.message, error.hint or ""), 404)
        except CanaryError as error:
            return HTMLResponse(message(error.message, error.hint or ""), 400)
        except UNREADABLE as error:
            # A stranger's record may be valid and still make no sense.
            what = f"{type(error).__name__}: {error}"
            return HTMLResponse(message("this cannot be shown", what), 500)

    def _stream(self, name: str, looks: Sequence[Look]) -> Response:
        self._feeds = {name: feed for name, feed in self._feeds.items() if feed.watchers}
        if sum(feed.watchers for feed in self._feeds.values()) >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503)
        feed = self._feeds.setdefault(name, Feed(looks))
        return StreamingResponse(self._events(name, feed), media_type="text/event-stream")

    async def _events(self, name: str, feed: Feed) -> AsyncIterator[str]:
        try:
            async with aclosing(feed.events(self._is_ending)) as events:
                async for event in events:
                    yield event
        finally:
            if not feed.watchers:
                if self._feeds.get(name) is feed:
                    del self._feeds[name]
                self._forget(name)

    def _run(self, name: str) -> str:
        place = self.site.place(name)
        if seen_record(place.path).status == "running":
            feed = self._feeds.get(name)
            drawn = None if feed is None else feed.newest(live.CHARTS)
            return self.site.live_run(place, self._followed(name), drawn)
        return self.site.ended_run(place)

    def _followed(self, name: str) -> Following:
        """Return who follows a run; all its watchers share one.

        Raises:
            InputError, RecordError: there is no such run, or it cannot be read.
        """
        following = self._following.get(name) or Following(self.site.place(name).path)
        return self._following.setdefault(name, following)

    def _forget(self, name: str) -> None:
        """Drop the rows of a run that nobody watches."""
        if name not in self._feeds:
            self._following.pop(name, None)


def application(site: Site, entrance: Entrance, is_ending: Callable[[], bool]) -> Starlette:
    """Return the server's application."""
    shown = Shown(site, is_ending)
    routes = [
        Route("/", shown.runs),
        Route("/run/{name:path}", shown.run),
        Route("/compare", shown.compare),
        Route("/history", shown.history),
        Route("/campaign/{name}", shown.campaign),
        Route("/events/runs", shown.runs_events),
        Route("/events/run/{name:path}", shown.run_events),
        *(Route(address, shown.asset) for address in ASSETS),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, entrance=entrance)],
        exception_handlers={404: shown.unknown},
    )
