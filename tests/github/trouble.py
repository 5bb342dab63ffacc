"""Trouble that a test orders: gateways that fail before or after the deed, limits, pages of HTML,
redirects."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.github.routes import Answer, error
from tests.github.state import Clock

PRIMARY = "API rate limit exceeded for installation ID 1."
PAGE = b"<!DOCTYPE html><html><body><h1>Sign in to continue</h1></body></html>"
"""What a proxy, a portal or a gateway puts in the place of an answer."""
SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)


@dataclass
class Order:
    """What shall befall the next requests that match."""

    method: str
    path: re.Pattern[str]
    times: int
    status: int | None
    """None drops the connection without an answer."""
    message: str = "Server Error"
    applied: bool = False
    """Whether the request takes effect all the same, and only its answer is lost."""
    headers: Mapping[str, str] = field(default_factory=dict)
    late: float | None = None
    """Seconds after which the request takes effect, though its answer is lost."""
    timeout: float = 0.0
    """Seconds for which the client waits for it."""
    until: float | None = None
    """When, by GitHub's clock, it is over."""
    body: Any = None
    """The answer's body, where it is not GitHub's error."""
    to: str = ""
    """The address that a redirect leads to, without the path."""


class Trouble:
    """The orders that stand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._orders: list[Order] = []
        self._lock = threading.Lock()
        self._deeds: list[tuple[str, re.Pattern[str], Callable[[], object]]] = []

    def fail(
        self,
        method: str,
        path: str,
        *,
        times: int = 1,
        status: int | None = 502,
        applied: bool = False,
        message: str = "Server Error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """The next requests of this method, on a path that holds this pattern, fail."""
        self._orders.append(
            Order(method, re.compile(path), times, status, message, applied, headers or {})
        )

    def answers(
        self, method: str, path: str, body: Any = PAGE, *, times: int = 1, status: int = 200
    ) -> None:
        """The next requests of this method and path get this body: a page of HTML, or other JSON
        than GitHub describes."""
        kind = "text/html; charset=utf-8" if isinstance(body, bytes) else "application/json"
        order = Order(method, re.compile(path), times, status, headers={"Content-Type": kind})
        order.body = body
        self._orders.append(order)

    def redirect(
        self, method: str, path: str, to: str, *, status: int = 302, times: int = 1
    ) -> None:
        """The next requests are sent on to the same path at another address, or at the same."""
        order = Order(method, re.compile(path), times, status, "Moved Permanently")
        order.to = to
        self._orders.append(order)

    def rate_limit(
        self, seconds: float = 60, *, times: int = 1, method: str = ".*", path: str = ""
    ) -> None:
        """The hour's requests are used up until so many seconds from now, for so many requests."""
        until = self._clock.time() + seconds
        headers = {
            "x-ratelimit-limit": "1000",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": str(int(until)),
        }
        self._orders.append(
            Order(method, re.compile(path), times, 403, PRIMARY, headers=headers, until=until)
        )

    def slow_down(
        self, seconds: int = 60, *, times: int = 1, method: str = ".*", path: str = ""
    ) -> None:
        """GitHub asks for a pause: its secondary limit."""
        until = self._clock.time() + seconds
        headers = {"retry-after": str(seconds)}
        self._orders.append(
            Order(method, re.compile(path), times, 403, SECONDARY, headers=headers, until=until)
        )

    def before(self, method: str, path: str, deed: Callable[[], object]) -> None:
        """Another writer is faster: its deed comes just before the next request that matches."""
        self._deeds.append((method, re.compile(path), deed))

    def other_first(self, method: str, path: str) -> None:
        """Lets another do what it was ordered to do before this request."""
        with self._lock:
            meant = (
                deed
                for deed in self._deeds
                if re.fullmatch(deed[0], method) and deed[1].search(path)
            )
            found = next(meant, None)
            if found is not None:
                self._deeds.remove(found)
        if found is not None:
            found[2]()

    def hold(self, method: str, path: str, seconds: float, times: int = 1) -> None:
        """The next requests that match are carried out, and answered, so many seconds later."""
        for _ in range(times):
            self.before(method, path, lambda: self._clock.sleep(seconds))

    def late(self, method: str, path: str, seconds: float, timeout: float = 30) -> None:
        """The client gives the next request that matches up; so many seconds after it was sent it
        is carried out all the same."""
        self._orders.append(Order(method, re.compile(path), 1, None, late=seconds, timeout=timeout))

    def next(self, method: str, path: str) -> Order | None:
        """The order that befalls this request, counted."""
        now = self._clock.time()
        for order in self._orders:
            over = order.until is not None and now >= order.until
            if order.times > 0 and not over and self._meant(order, method, path):
                order.times -= 1
                return order
        return None

    @staticmethod
    def _meant(order: Order, method: str, path: str) -> bool:
        return bool(re.fullmatch(order.method, method) and order.path.search(path))


def answer(order: Order, target: str) -> Answer | None:
    """What is answered to a request for `target` instead; None drops the connection."""
    if order.status is None:
        return None
    if order.body is not None:
        return Answer(order.status, order.body, order.headers)
    found = error(order.status, order.message)
    headers = {**order.headers, "Location": f"{order.to}{target}"} if order.to else order.headers
    return Answer(found.status, found.body, headers)
