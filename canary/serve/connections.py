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

    If there are too many, an idle one makes room, or else the one answered longest.
    """

    _deadline: asyncio.TimerHandle | None = None
    _heard = 0.0
    """The loop's time at which it connected or last sent something."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room, and begin to wait for a request."""
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._wait()
        others = [it for it in self.connections if isinstance(it, Connection) and it is not self]
        same = [one for one in others if one.address == self.address]
        if len(same) >= MOST_PER_ADDRESS:
            _close_least(same)
        elif len(others) >= MOST_CONNECTIONS:
            _close_least(others)

    @property
    def address(self) -> str:
        """Who is at the other end; of IPv6 the network, which has many addresses."""
        host = self.client[0] if self.client else ""
        return ":".join(host.split(":")[:4])

    def data_received(self, data: bytes) -> None:
        """Read; a request that has begun to be answered is not waited for."""
        self._heard = self.loop.time()
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

    def worth(self) -> tuple[bool, float]:
        """Return what orders connections: idle ones first, then by the time of the last bytes."""
        return not self._is_idle(), self._heard


def _close_least(connections: Iterable[Connection]) -> None:
    """Close the connection that has been idle longest; without one, that answered longest."""
    least = min(connections, key=Connection.worth)
    least.connections.discard(least)  # It counts until the loop has closed it.
    least.transport.abort()
