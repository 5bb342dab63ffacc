"""Bind, print the address, and serve until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from canary.errors import InputError, MachineError, UsageError
from canary.report.pages import can_draw

if TYPE_CHECKING:
    from canary.serve.guard import Entrance

NEEDED = ("starlette", "uvicorn")
PORT = 8642
LOOPBACK = "127.0.0.1"
LEAST_TOKEN = 16
"""Characters of a token that a user chooses."""
BACKLOG = 64
NICENESS = 10
"""Added to the priority number: a training on this machine goes first."""
STOPPING_S = 3
"""Seconds that open connections get to end."""


@dataclass(frozen=True)
class ServeRequest:
    """The arguments of `canary serve`."""

    folder: Path
    host: str = LOOPBACK
    port: int = PORT
    token_file: Path | None = None


def require_server() -> None:
    """Raise MachineError if the extra is missing."""
    if not can_draw() or any(importlib.util.find_spec(name) is None for name in NEEDED):
        raise MachineError(
            "pages need the extra `serve`",
            "install its packages: pip install starlette uvicorn altair vl-convert-python",
        )


def serve(request: ServeRequest, ready: Callable[[str], None]) -> None:
    """Serve a folder's runs until Ctrl-C; `ready` gets the address.

    Raises:
        InputError: there is no such folder or token.
        UsageError: the folder is a run.
        MachineError: the extra is missing, or the address cannot be bound.
    """
    require_server()
    _check(request)
    import uvicorn

    from canary.serve.app import application
    from canary.serve.connections import MOST_CONNECTIONS, Connection
    from canary.serve.guard import Entrance
    from canary.serve.pages import Site

    token = _token(request)
    with _bound(request) as listening:
        entrance = Entrance(request.host, listening.getsockname()[1], token)
        config = uvicorn.Config(
            application(Site(request.folder), entrance),
            loop="asyncio",
            http=Connection,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=MOST_CONNECTIONS + 2,  # `Connection` closes those above
            timeout_graceful_shutdown=STOPPING_S,
        )
        server = uvicorn.Server(config)
        with contextlib.suppress(OSError):
            os.nice(NICENESS)
        ready(address(entrance))
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            return  # It is how a user ends it.


def address(entrance: Entrance) -> str:
    """Return the address to open; it has the token, if there is one."""
    from canary.serve.guard import EVERY_ADDRESS, in_address

    host = socket.gethostname() if entrance.host in EVERY_ADDRESS else in_address(entrance.host)
    token = f"?token={entrance.token}" if entrance.token else ""
    return f"http://{host}:{entrance.port}/{token}"


def _check(request: ServeRequest) -> None:
    if not request.folder.is_dir():
        what = "is not a folder" if request.folder.exists() else "does not exist"
        raise InputError(f"{request.folder} {what}", "`canary run` makes a folder of runs")
    if (request.folder / "metrics.json").exists():
        raise UsageError(f"{request.folder} is a run", f"canary serve {request.folder.parent}")


def _token(request: ServeRequest) -> str:
    """Return the token; empty on the loopback interface, unless there is a file with one."""
    if request.token_file is None:
        return "" if _is_loopback(request.host) else secrets.token_urlsafe(24)
    try:
        token = request.token_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "it is not plain text"
        raise InputError(
            f"cannot read {request.token_file}: {why}", "without --token-file a new token is made"
        ) from error
    if len(token) < LEAST_TOKEN or not all(c.isalnum() or c in "-_" for c in token):
        raise InputError(
            f"the token in {request.token_file} is too short, or has other characters",
            f"write {LEAST_TOKEN} or more letters, digits, - and _ into it",
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(request: ServeRequest) -> socket.socket:
    """Return a listening socket.

    Raises:
        MachineError: the port is in use, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in request.host else socket.AF_INET
    try:
        return socket.create_server((request.host, request.port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MachineError(
                f"port {request.port} is in use", "choose another with --port; 0 takes a free one"
            ) from error
        raise MachineError(
            # Python adds the address to the system's reason.
            f"cannot listen on {request.host}:{request.port}: "
            f"{os.strerror(error.errno) if error.errno else error}",
            "choose another --host or --port",
        ) from error
