"""The server: bind on the loopback interface, print the address, and answer until Ctrl-C.

A page of another site can send requests to the loopback interface. Its own name can lead here too
(DNS rebinding). Neither may read a run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import threading
from collections.abc import Callable
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from canary.errors import CanaryError, InputError, MachineError, UsageError
from canary.report.pages import require_charts
from canary.report.render import asset, source_of
from canary.serve.live import UNREADABLE
from canary.serve.pages import NoSuchPage, Site, message

LOOPBACK = "127.0.0.1"
OUR_NAMES = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
"""Names of this server. ssh may forward another port."""
OURS = ("same-origin", "none")
"""`Sec-Fetch-Site` of our own pages, and of an address that the user typed."""
NICENESS = 10
"""Added to the priority number: a training on this machine goes first."""
ASSETS = {
    "/style.css": ("text/css", ("report.css", "served.css")),
    "/report.js": ("text/javascript", ("report.js",)),
    "/live.js": ("text/javascript", ("live.js",)),
}


def serve(folder: Path, port: int, ready: Callable[[str], None]) -> None:
    """Serve a folder's runs until Ctrl-C; `ready` gets the address.

    Raises:
        InputError: there is no such folder.
        UsageError: the folder is a run.
        MachineError: the extra is missing, or the port cannot be bound.
    """
    require_charts()
    _check(folder)
    with bound(folder, port) as server, contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it.
        with contextlib.suppress(OSError):
            os.nice(NICENESS)
        ready(f"http://{LOOPBACK}:{server.server_port}/")
        server.serve_forever()


def _check(folder: Path) -> None:
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}", "`canary run` makes a folder of runs")
    if (folder / "metrics.json").exists():
        raise UsageError(f"{folder} is a run", f"canary serve {folder.parent}")


def bound(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a listening server.

    Raises:
        MachineError: the port is in use, or not allowed.
    """
    try:
        return _Server((LOOPBACK, port), answering(Site(folder)))
    except OSError as error:
        what = f"cannot listen on port {port}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} is in use"
        raise MachineError(what, "choose another with --port; 0 takes a free one") from error


def answer_headers() -> dict[str, str]:
    """Return the headers of every answer. The policy allows our scripts and styles, and requests
    to this server only."""
    policy = (
        "default-src 'none'",
        f"style-src 'self' {source_of(asset('report.css'))}",
        f"script-src 'self' {source_of(asset('report.js'))}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def refusal(headers: Message) -> str:
    """Return why a request is not answered; empty if it may be."""
    names = headers.get_all("Host", [])
    if len(names) != 1 or not OUR_NAMES.fullmatch(names[0]):
        return "This is not the address of this server."
    # A link to a page may be followed.
    follows_link = headers.get("Sec-Fetch-Mode") == "navigate"
    in_window = headers.get("Sec-Fetch-Dest") == "document"
    is_ours = headers.get("Sec-Fetch-Site", "none") in OURS or (follows_link and in_window)
    return "" if is_ours else "Another site asked."


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader that left or stalls."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def answering(site: Site) -> Callable[..., BaseHTTPRequestHandler]:
    """Return what the standard library calls with each connection."""
    return partial(_Answer, site, threading.Lock(), answer_headers())


class _Answer(BaseHTTPRequestHandler):
    """Answers one request. It only reads: there is no method but GET and HEAD."""

    timeout = 10.0  # in seconds, until the request must be complete
    server_version, sys_version = "canary", ""

    def __init__(
        self, site: Site, drawing: threading.Lock, headers: dict[str, str], *connection: Any
    ) -> None:
        """`drawing`: held while a page with charts is made, by one thread at a time."""
        self._site, self._drawing, self._own_headers = site, drawing, headers
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Answer with a page, a style sheet or a script."""
        why = refusal(self.headers)
        try:
            place = urlsplit(self.path)
        except ValueError:
            self._send(400, "text/plain", "this is not a valid address\n")
            return
        if why:
            self._send(403, "text/plain", f"{why}\n")
        elif place.path in ASSETS:
            kind, names = ASSETS[place.path]
            self._send(200, kind, "".join(map(asset, names)))
        else:
            asked = {name: found[0] for name, found in parse_qs(place.query).items()}
            self._send(*self._page(unquote(place.path), asked))

    def _page(self, path: str, asked: dict[str, str]) -> tuple[int, str, str]:
        """Return status, type and text of a page; an error that a user can cause is one too."""
        try:
            return 200, "text/html", self._made(path, asked)
        except CanaryError as error:
            code = 404 if isinstance(error, NoSuchPage) else 400
            return code, "text/html", message(error.message, error.hint or "")
        except UNREADABLE as error:
            # A stranger's record may be valid and still make no sense.
            what = f"{type(error).__name__}: {error}"
            return 500, "text/html", message("this cannot be shown", what)

    def _made(self, path: str, asked: dict[str, str]) -> str:
        if path == "/":
            return self._site.runs()
        with self._drawing:
            if path.startswith("/run/"):
                return self._site.run(path.removeprefix("/run/"))
            if path.startswith("/ladder/"):
                return self._site.ladder(path.removeprefix("/ladder/"))
            if path == "/compare":
                return self._site.comparison(asked.get("current", ""), asked.get("baseline", ""))
        raise NoSuchPage("no such page", "go back to the list of runs")

    def _send(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def end_headers(self) -> None:
        """Add what every answer has, also that of the standard library to a wrong request."""
        for name, value in self._own_headers.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *said: object) -> None:
        """Log nothing: the terminal shows the address alone."""
