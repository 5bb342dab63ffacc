"""The server's addresses. Pages are made in threads; one at a time draws charts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from canary.errors import CanaryError
from canary.report.html import asset
from canary.serve.following import UNREADABLE
from canary.serve.guard import Entrance, Guard
from canary.serve.pages import NoSuchPage, Site, message

ASSETS = {
    "/style.css": ("text/css", ("report.css", "served.css")),
    "/report.js": ("text/javascript", ("report.js",)),
    "/live.js": ("text/javascript", ("live.js",)),
}
Answer = Callable[[Request], Awaitable[Response]]


def application(site: Site, entrance: Entrance) -> Starlette:
    """Return the server's application."""
    drawing = CapacityLimiter(1)
    pages: dict[str, Callable[[Request], str]] = {
        "/run/{name:path}": lambda asked: site.run(asked.path_params["name"]),
        "/ladder/{name}": lambda asked: site.ladder(asked.path_params["name"]),
        "/compare": lambda asked: site.comparison(
            asked.query_params.get("current", ""), asked.query_params.get("baseline", "")
        ),
    }
    return Starlette(
        routes=[
            Route("/", _page(lambda asked: site.runs(), None)),
            *(Route(address, _page(make, drawing)) for address, make in pages.items()),
            *(Route(address, _asset) for address in ASSETS),
        ],
        middleware=[Middleware(Guard, entrance=entrance)],
        exception_handlers={404: _unknown},
    )


def _page(make: Callable[[Request], str], limiter: CapacityLimiter | None) -> Answer:
    """Return what answers with a page; an error that a user can cause becomes one too."""

    async def answer(asked: Request) -> Response:
        try:
            return HTMLResponse(await to_thread.run_sync(make, asked, limiter=limiter))
        except CanaryError as error:
            code = 404 if isinstance(error, NoSuchPage) else 400
            return HTMLResponse(message(error.message, error.hint or ""), code)
        except UNREADABLE as error:
            # A stranger's record may be valid and still make no sense.
            what = f"{type(error).__name__}: {error}"
            return HTMLResponse(message("this cannot be shown", what), 500)

    return answer


async def _asset(asked: Request) -> Response:
    kind, names = ASSETS[asked.url.path]
    return Response("".join(map(asset, names)), media_type=kind)


async def _unknown(asked: Request, error: Exception) -> Response:
    return HTMLResponse(message("no such page", "go back to the list of runs"), 404)
