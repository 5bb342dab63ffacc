"""Half-sent requests: how many connections they hold, and for how long."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from canary.serve import connections
from canary.serve.connections import MOST_CONNECTIONS, MOST_PER_ADDRESS, Connection

HALF = b"GET / HTTP/1.1\r\nHost: "
REST = b"here\r\n\r\n"


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server that greets."""
    config = uvicorn.Config(
        PlainTextResponse("hello"),
        http=Connection,
        log_config=None,
        lifespan="off",
        limit_concurrency=MOST_CONNECTIONS + 2,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0), backlog=256)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield int(listening.getsockname()[1])
        server.should_exit = True
        thread.join()


def sent(port: int, data: bytes, source: str = "127.0.0.1") -> socket.socket:
    """A connection from an address of the loopback interface, with some bytes sent."""
    asking = socket.create_connection(("127.0.0.1", port), 30, source_address=(source, 0))
    asking.sendall(data)
    return asking


def is_answered(asking: socket.socket) -> bool:
    with asking:
        try:
            return asking.recv(100).startswith(b"HTTP/1.1 200")
        except ConnectionResetError:
            return False


@pytest.mark.parametrize("addresses", [1, 5])
def test_half_sent_requests_lock_nobody_out(port: int, addresses: int) -> None:
    with ExitStack() as opened:
        held = [
            opened.enter_context(sent(port, HALF, f"127.0.0.{1 + number % addresses}"))
            for number in range(MOST_CONNECTIONS + 20)
        ]
        assert is_answered(sent(port, HALF + REST))
        assert is_answered(sent(port, HALF + REST, "127.0.0.9"))
        held[-1].sendall(REST)
        assert is_answered(held[-1]), "the newest of them is slow, and still served"
        assert not is_answered(held[0]), "the oldest of them made room"


def test_a_request_that_does_not_arrive_ends_its_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    with sent(port, HALF + REST) as kept, sent(port, HALF) as trickling, sent(port, b"") as silent:
        while not kept.recv(1000).endswith(b"hello"):
            pass
        kept.sendall(HALF)
        begun = time.monotonic()
        while time.monotonic() - begun < 0.4:
            trickling.sendall(b"x")
            time.sleep(0.1)
        assert not any(map(is_answered, (kept, trickling, silent)))
        assert 0.3 < time.monotonic() - begun < 20


def test_an_address_has_a_share(port: int) -> None:
    """Answered connections are kept open; others still come in."""
    with ExitStack() as opened:
        for _ in range(MOST_PER_ADDRESS):
            assert opened.enter_context(sent(port, HALF + REST)).recv(1000)
        assert is_answered(sent(port, HALF + REST, "127.0.0.2"))


@pytest.mark.parametrize("rounds", [0, 3])
def test_idle_connections_that_were_answered_make_room(port: int, rounds: int) -> None:
    """Also if each asks again and again."""
    with ExitStack() as opened:
        idle = [opened.enter_context(sent(port, HALF + REST)) for _ in range(MOST_PER_ADDRESS)]
        for one in idle:
            assert one.recv(1000)
        for _ in range(rounds):
            assert is_answered(sent(port, HALF + REST))
            for one in idle[-10:]:
                one.sendall(HALF + REST)
                assert one.recv(1000)
        assert is_answered(sent(port, HALF + REST))
