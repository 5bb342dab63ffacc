"""A browser's requests to the server, without a network."""

from __future__ import annotations

import http.client
import io
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from canary.serve.pages import Site
from canary.serve.server import answering


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status_code: int
    headers: Message
    text: str


class _Connection:
    """What the server and the standard library's client take for a socket."""

    def __init__(self, asked: bytes) -> None:
        self._asked = asked
        self.said = b""

    def makefile(self, *how: Any) -> io.BytesIO:
        return io.BytesIO(self._asked)

    def settimeout(self, seconds: float) -> None:
        """It has all that is asked."""

    def sendall(self, data: bytes) -> None:
        self.said += data


class Asking:
    """A client of a server that shows this folder."""

    def __init__(self, root: Path, **site: Any) -> None:
        self._answer = answering(Site(root, **site))

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask; without another `Host`, by the server's name."""
        given = {"Host": "127.0.0.1:8642"} | dict(headers or {})
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items())]
        connection = _Connection("\r\n".join([*lines, "", ""]).encode())
        self._answer(connection, ("127.0.0.1", 1), None)
        found = http.client.HTTPResponse(_Connection(connection.said), method=method)  # type: ignore[arg-type]
        found.begin()
        return Answer(found.status, found.headers, found.read().decode())

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.request("GET", path, headers)

    def post(self, path: str) -> Answer:
        return self.request("POST", path)
