"""How long a request's head may take, and how many connections an address may have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""Seconds in which a request must be complete."""
MOST_CONNECTIONS = 128
MOST_PER_ADDRESS = 64


class Connection(H11Protocol):
    """A connection that is closed if its request does not arrive.

    If there are too many, the one that has waited longest for its request makes room.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room, and begin to wait for a request."""
        super().connection_made(transport)
        self._wait()
        everyone = [one for one in self.connections if isinstance(one, Connection)]
        same = [one for one in everyone if one.address == self.address]
        if len(same) > MOST_PER_ADDRESS:
            _close_oldest(same)
        elif len(everyone) > MOST_CONNECTIONS:
            _close_oldest(everyone)

    @property
    def address(self) -> str:
        """Who is at the other end; of IPv6 the network, which has many addresses."""
        host = self.client[0] if self.client else ""
        return ":".join(host.split(":")[:4])

    def data_received(self, data: bytes) -> None:
        """Read; a request that has begun to be answered is not waited for."""
        if self._is_idle():
            self._wait()
        super().data_received(data)
        if not self._is_idle():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def waits_until(self) -> float:
        """Return the loop's time at which it is closed; infinite while it is answered."""
        return float("inf") if self._deadline is None else self._deadline.when()


def _close_oldest(connections: Iterable[Connection]) -> None:
    """Close the connection that has waited longest: the newest, if all others are answered."""
    oldest = min(connections, key=Connection.waits_until)
    oldest.connections.discard(oldest)  # It counts until the loop has closed it.
    oldest.transport.abort()
