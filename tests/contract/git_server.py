"""A real git server on loopback: git's own http-backend behind Python's HTTP server.

It asks for a token as GitHub does, may refuse writes, and can be told to break answers.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

WRITE = "git-receive-pack"


@dataclass
class GitServer:
    """Repositories below `root` at `http://127.0.0.1:<port>/<name>.git`."""

    root: Path
    token: str = ""
    """Asked for by HTTP's basic authorization, user `x-access-token`; empty: nobody is asked."""
    read_only: bool = False
    """The token may read and not write: 403, with GitHub's words."""
    readers: dict[str, str] = field(default_factory=dict)
    """Further users and their passwords, which may only read."""
    broken_before: list[int] = field(default_factory=list)
    """Statuses given to the next writes instead of doing them."""
    broken_after: list[int] = field(default_factory=list)
    """Statuses given to the next writes after doing them."""
    pages: list[bytes] = field(default_factory=list)
    """Answers with 200 to the next requests, whatever they ask: another server than git's."""
    requests: list[str] = field(default_factory=list)
    """Method and target of every request."""
    port: int = 0

    @property
    def address(self) -> str:
        """The server's own URL."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, name: str = "repo") -> str:
        """The URL of a repository."""
        return f"{self.address}/{name}.git"

    def make(self, name: str = "repo") -> Path:
        """A new bare repository, as GitHub has them: written over HTTP, filters, any commit."""
        path = self.root / f"{name}.git"
        bare_repository(path)
        for key in ("http.receivepack", "uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
            git(path, "config", key, "true")
        return path


def git(folder: Path, *arguments: str, given: str = "") -> str:
    """Standard output of a git command that must succeed."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    done = subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def bare_repository(path: Path) -> Path:
    """A new repository without a checkout."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--bare", "--initial-branch=main")
    return path


@contextlib.contextmanager
def serving(root: Path, token: str = "", *, read_only: bool = False) -> Iterator[GitServer]:
    """The server for as long as the block lasts."""
    server = GitServer(root, token, read_only)

    class Handler(_Handler):
        served = server

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: GitServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        server = self.served
        server.requests.append(f"{self.command} {self.path}")
        body = self._body()
        writing = WRITE in self.path
        if server.token and not self._known():
            self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"'})
        elif server.pages:
            self._answer(200, server.pages.pop(0), {"Content-Type": "text/html"})
        elif writing and (server.read_only or self._reader()):
            self._answer(403, b"remote: Write access to repository not granted.\n")
        elif writing and self.command == "POST" and server.broken_before:
            self._answer(server.broken_before.pop(0), b"")
        else:
            status, headers, out = self._backend(body)
            if writing and self.command == "POST" and server.broken_after:
                status, headers, out = server.broken_after.pop(0), {}, b""
            self._answer(status, out, headers)

    def _known(self) -> bool:
        return self._is("x-access-token", self.served.token) or self._reader()

    def _reader(self) -> bool:
        return any(self._is(user, password) for user, password in self.served.readers.items())

    def _is(self, user: str, password: str) -> bool:
        wanted = base64.b64encode(f"{user}:{password}".encode()).decode()
        return self.headers.get("Authorization", "").lower() == f"basic {wanted}".lower()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _backend(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """git's own answer, by the rules of CGI."""
        target = urlsplit(self.path)
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.served.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": target.path,
            "QUERY_STRING": target.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environ, capture_output=True, check=False
        )
        head, _, out = done.stdout.partition(b"\r\n\r\n")
        pairs = (line.partition(": ") for line in head.decode("latin-1").split("\r\n") if line)
        headers = {name: value for name, _, value in pairs}
        return int(headers.pop("Status", "200").split()[0]), headers, out

    def _answer(self, status: int, out: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
