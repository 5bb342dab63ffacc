"""GitHub on the loopback interface: its address, its state, and what a test may order of it.

Every request and every answer is held to GitHub's own description. A breach is answered with 400,
which no client retries, and kept in `breaches`; the fixture fails the test for it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import github

from tests.github import routes, trouble
from tests.github.openapi import Description, Fault, Operation, typed
from tests.github.payloads import Payloads
from tests.github.routes import Answer, Call, Missing
from tests.github.state import BOT, Repository, State

GHES_PREFIX = "/api/v3"
WRITES = {
    "contents": "read",
    "actions": "read",
    "metadata": "read",
    "issues": "read",
    "pull_requests": "write",
    "statuses": "write",
    "checks": "write",
}
"""What the token of a job that answers may do, as our workflows ask for it."""
LEVELS = ("none", "read", "write")


class GitHub:
    """What a test holds in its hands."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self.state = State()
        self.clock = self.state.clock
        self.trouble = trouble.Trouble(self.clock)
        self.token = "ghs_thisIsTheTokenOfTheTests0123456789ab"
        self.login = BOT
        """Whom the token writes as; another than the bot for a personal token."""
        self.permissions = dict(WRITES)
        self.breaches: list[str] = []
        self.url = ""
        """Address of the API, as GITHUB_API_URL would be on github.com."""
        self.blobs = ""
        """Another host, as it were, where artifacts are downloaded from."""
        self.visits: list[str] = []
        """Paths that the other host was asked for, with the token or without."""
        self._lock = threading.RLock()
        self._late: list[tuple[float, Callable[[], Answer]]] = []

    @property
    def ghes_url(self) -> str:
        """Address of the API as on a GitHub Enterprise Server."""
        return self.url + GHES_PREFIX

    def client(self, url: str = "", **options: Any) -> github.Github:
        """PyGithub, without its pauses and tries."""
        options = {"retry": None, "seconds_between_writes": 0.0, **options}
        options.setdefault("seconds_between_requests", 0.0)
        return github.Github(
            base_url=url or self.url, auth=github.Auth.Token(self.token), **options
        )

    def read_only(self) -> None:
        """Takes every permission to write from the token, as in a fork's pull request."""
        self.permissions = dict.fromkeys(self.permissions, "read")

    def carry_out(self, *, all: bool = False) -> None:
        """Carries out what clients gave up, where its time has come."""
        with self._lock:
            for late in sorted(self._late, key=lambda late: late[0]):
                if all or late[0] <= self.clock.time():
                    self._late.remove(late)
                    late[1]()

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes
    ) -> Answer | None:
        """Answers a request; None drops the connection."""
        parts = urlsplit(target)
        ghes = parts.path.startswith(f"{GHES_PREFIX}/")
        path = parts.path.removeprefix(GHES_PREFIX) if ghes else parts.path
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        self.trouble.other_first(method, path)
        self.carry_out()
        with self._lock:
            try:
                body = json.loads(content) if content else None
            except ValueError:
                return self._breach(method, path, [Fault("body", "is no JSON")])
            base = self.ghes_url if ghes else self.url
            return self._troubled(method, path, query, headers, body, base)

    def _troubled(
        self,
        method: str,
        path: str,
        query: tuple[tuple[str, str], ...],
        headers: Mapping[str, str],
        body: Any,
        base: str,
    ) -> Answer | None:
        """The answer, unless trouble was ordered."""
        if not self._known_token(headers):
            return routes.error(401, "Bad credentials")
        order = self.trouble.next(method, path)
        if order is None:
            return self._checked(method, path, query, body, base)
        if order.applied:
            self._checked(method, path, query, body, base)
        if order.late is not None:
            due = self.clock.time() + order.late
            deed = partial(self._checked, method, path, query, body, base)
            self._late.append((due, deed))
            self.clock.advance(order.timeout)
        return trouble.answer(order, f"{path}?{urlencode(query)}" if query else path)

    def _known_token(self, headers: Mapping[str, str]) -> bool:
        given = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
        return given in (f"token {self.token}", f"Bearer {self.token}")

    def _checked(
        self, method: str, path: str, query: tuple[tuple[str, str], ...], body: Any, base: str
    ) -> Answer:
        """The answer to a request that is as described, itself as described."""
        found = self.description.find(method, path)
        if found is None:
            return self._breach(method, path, [Fault("path", "GitHub has no such operation")])
        operation, raw = found
        names = {name: unquote(text) for name, text in raw.items()}
        faults = self.description.request_faults(operation, names, query, body)
        if any(not fault.limit for fault in faults):
            return self._breach(method, path, faults)
        if faults:
            return routes.invalid("Request", faults[0].where, faults[0].message)
        values = self._typed(operation, names, query)
        answer = self._performed(operation, values, body, base, path)
        wrong = self.description.answer_faults(operation, answer.status, answer.body)
        return self._breach(method, path, wrong, "the answer: ") if wrong else answer

    def _typed(
        self, operation: Operation, names: Mapping[str, str], query: tuple[tuple[str, str], ...]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        schemas = self.description.parameter_schemas(operation)
        return (
            {name: typed(schemas[name], text) for name, text in names.items()},
            {name: typed(schemas[name], text) for name, text in query},
        )

    def _performed(
        self,
        operation: Operation,
        values: tuple[dict[str, Any], dict[str, Any]],
        body: Any,
        base: str,
        path: str,
    ) -> Answer:
        parameters, query = values
        name = f"{parameters.get('owner')}/{parameters.get('repo')}"
        repository = self.state.repositories.get(name)
        if operation.id in ("users/get-authenticated", "rate-limit/get"):
            nowhere = Repository("none/none", self.clock, iter(()), "main", False)
            payloads = Payloads(self.description, base, nowhere)
            if operation.id == "rate-limit/get":
                return Answer(200, self.description.example("rate-limit-overview"))
            return routes.user(payloads, self.login)
        handler = routes.HANDLERS.get(operation.id)
        if handler is None:
            return self._breach(
                operation.method,
                path,
                [Fault("path", f"{operation.id} is not served by the tests")],
            )
        if repository is None:
            return routes.error(404, "Not Found")
        if not self._may(operation.id, repository):
            return routes.error(403, "Resource not accessible by integration")
        payloads = Payloads(self.description, base, repository)
        place = (base + path, self.blobs)
        call = Call(repository, payloads, parameters, query, body, self.login, *place)
        try:
            return handler(call)
        except Missing as missing:
            return routes.error(missing.status, missing.message)

    def _may(self, operation: str, repository: Repository) -> bool:
        """Whether the token may; of a public repository everybody may read."""
        scopes, level = routes.SCOPES[operation]
        if level == "read" and not repository.private:
            return True
        needed = LEVELS.index(level)
        return any(LEVELS.index(self.permissions.get(scope, "none")) >= needed for scope in scopes)

    def _breach(
        self, method: str, path: str, faults: list[Fault], what: str = "the request: "
    ) -> Answer:
        said = "; ".join(f"{what}{fault}" for fault in faults)
        self.breaches.append(f"{method} {path}: {said}")
        return Answer(400, {"message": f"Not as GitHub describes it: {said}"})

    def blob(self, path: str, headers: Mapping[str, str]) -> Answer:
        """A file from the other host, which refuses whoever sends it GitHub's token."""
        self.visits.append(path)
        if "authorization" in {name.lower() for name in headers}:
            self.breaches.append(f"GET {path}: the token was sent to the host of the files")
            return Answer(400, b"InvalidAuthenticationInfo")
        owner, name, number, _ = f"{path.strip('/')}///".split("/", 3)
        repository = self.state.repositories.get(f"{owner}/{name}")
        if repository is None or not number.isdigit():
            return Answer(404, b"ResourceNotFound")
        return Answer(200, routes.artifact_of(repository, int(number)).content)


Answerer = Callable[[str, str, Mapping[str, str], bytes], Answer | None]


def _handler(answerer: Answerer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one packet: in two, the second waits for the first to be acknowledged.
        wbufsize = -1

        def _any(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answerer(self.command, self.path, dict(self.headers), content)
            if found is None:
                self.close_connection = True
                return
            body = found.body
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            text = b"" if body is None else text
            self.send_response(found.status)
            for name, value in {**_usual_headers(), **found.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing; the requests are in the log of `GitHub`."""

    return Handler


def _usual_headers() -> dict[str, str]:
    return {
        "Content-Type": "application/json; charset=utf-8",
        "x-ratelimit-limit": "1000",
        "x-ratelimit-remaining": "900",
        "x-ratelimit-reset": str(int(time.time()) + 3600),
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    failures: list[str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no failure; a mistake of ours fails the test."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.failures.append(f"the GitHub of the tests broke: {error!r}")


@contextmanager
def _listening(answerer: Answerer, failures: list[str]) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), _handler(answerer))
    server.failures = failures
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(description: Description) -> Iterator[GitHub]:
    """GitHub, listening."""
    hub = GitHub(description)
    files: Answerer = lambda _, target, headers, __: hub.blob(target, headers)  # noqa: E731
    kept = hub.breaches
    with _listening(hub.answer, kept) as hub.url, _listening(files, kept) as hub.blobs:
        yield hub
