"""Who may ask: the names of this server, its token, and only to read. ASGI middleware.

A page of another site can send requests to the loopback interface. Its own name can lead here too
(DNS rebinding). Neither may read a run.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from canary.report.html import asset, source_of

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
EVERY_ADDRESS = ("0.0.0.0", "::")
HTTP = 80
READING = ("GET", "HEAD")
OURS = ("same-origin", "none")
"""`Sec-Fetch-Site` of our own pages, and of an address that the user typed."""
TOKEN = "token"


def policy() -> str:
    """Return the pages' policy: our scripts and styles, and requests to this server only."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src 'self' {source_of(asset('report.css'))}",
            f"script-src 'self' {source_of(asset('report.js'))}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


@dataclass(frozen=True)
class Entrance:
    """The names of the server, and what it asks for."""

    host: str
    port: int
    token: str = field(default="", repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name: browsers share cookies between the ports of a host."""
        return f"canary_{self.port}"

    def knows(self, host: str) -> bool:
        """Return whether a `Host` header names this server.

        A server on every address has names that it does not know; its token protects it."""
        if self.token and self.host in EVERY_ADDRESS:
            return True
        names = (*LOOPBACK, in_address(self.host))
        # Browsers leave out the port of http.
        known = {*names} if self.port == HTTP else {f"{name}:{self.port}" for name in names}
        return host.lower() in known

    def admits(self, given: str | None) -> bool:
        """Return whether this is the token."""
        digests = [hashlib.sha256((text or "").encode()).digest() for text in (given, self.token)]
        return secrets.compare_digest(*digests)


def in_address(host: str) -> str:
    """Return a host as an address has it."""
    return f"[{host}]" if ":" in host else host


class Guard:
    """Refuses strangers' requests, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._entrance = entrance
        self._headers = {
            "Content-Security-Policy": policy(),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] != "http":
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        app = self._refusal(scope) or self._app
        await app(scope, receive, sent)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return why a request is not answered, or the redirect that takes its token."""
        headers = Headers(scope=scope)
        if not self._entrance.knows(headers.get("host", "")):
            return _no("This is not the address of this server.", 403)
        if scope["method"] not in READING:
            return _no("This server only shows.", 405, {"Allow": ", ".join(READING)})
        if not _is_ours(headers):
            return _no("Another site asked.", 403)
        return self._without_token(scope, headers) if self._entrance.token else None

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == TOKEN]
        if given and self._entrance.admits(given[0]):
            return self._admitted(scope["path"], [pair for pair in query if pair[0] != TOKEN])
        cookies = cookie_parser(headers.get("cookie", ""))
        if self._entrance.admits(cookies.get(self._entrance.cookie)):
            return None
        return _no("Open the address that `canary serve` printed: it has the token.", 403)

    def _admitted(self, path: str, query: Iterable[tuple[str, str]]) -> Response:
        """Return a redirect to the address without the token, which becomes a cookie."""
        rest = urlencode(list(query))
        # Two slashes would lead to another server.
        place = "/" + path.lstrip("/")
        answer = RedirectResponse(f"{place}?{rest}" if rest else place, 303)
        answer.set_cookie(
            self._entrance.cookie, self._entrance.token, httponly=True, samesite="strict"
        )
        return answer


def _is_ours(headers: Headers) -> bool:
    """Return whether no page of another site asked; a link to a page may be followed."""
    follows_link = headers.get("sec-fetch-mode") == "navigate"
    in_window = headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site", "none") in OURS or (follows_link and in_window)


def _no(why: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{why}\n", status, headers)
