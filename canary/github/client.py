"""GitHub through PyGithub, which retries reads; this module retries writes.

GitHub may carry out a write and still answer 502. So before a retry we look for the write's effect.
Only answers of GitHub's API are accepted: the expected JSON, from the API's address. PyGithub would
treat an HTML page as an object without attributes, and a redirect as success.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests
from github import Auth, Github, GithubRetry
from github.GithubException import (
    BadAttributeException,
    GithubException,
    RateLimitExceededException,
)
from github.Repository import Repository
from urllib3.util.retry import Retry

from canary.config.token import Token
from canary.errors import MachineError

Written = TypeVar("Written")

READS = Retry.DEFAULT_ALLOWED_METHODS - {"PUT", "DELETE"}
ATTEMPTS = 4
READ_TRIES = 3
FIRST_WAIT_S = 2.0
PATIENCE_S = 300.0
"""Longest wait for a rate limit; after it the answer is only in the step summary."""
TIMEOUT_S = 30

REFUSALS = {
    401: "GitHub does not accept the token",
    403: "GitHub refuses this token",
    404: "GitHub finds nothing there: it was deleted, or this token may not see it",
}
"""Messages for a token without permission. GitHub also answers 404 if the token may not read."""
UNFIT = (
    AssertionError,
    AttributeError,
    BadAttributeException,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""PyGithub's errors for JSON that does not follow GitHub's API description."""
AGAIN = "run the job again"
LATER = "run the job again later"


class Refused(MachineError):
    """GitHub does not let this token do it; `said` is GitHub's message."""

    def __init__(self, what: str, status: int, said: str) -> None:
        hint = "give the job `contents: read` and `pull-requests: read`"
        super().__init__(f"{what}: {REFUSALS[status]} ({said})", hint)
        self.status = status
        self.said = said


@dataclass(frozen=True)
class Hub:
    """A client of one repository on GitHub; tests replace `sleep` and `clock`."""

    github: Github
    repository: Repository
    """The gated one, made without a request: a failed read must not prevent the answer."""
    token: Token = field(repr=False)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    def write(self, what: str, post: Callable[[], Written]) -> Written:
        """Post, and try again if that fails: `post` checks whether an earlier try took effect.

        Raises:
            Refused: the token lacks the permission.
            MachineError: every try failed, or GitHub asks for too long a wait.
        """
        problem = hint = ""
        for attempt in range(ATTEMPTS):
            hint, wait = AGAIN, FIRST_WAIT_S * 2**attempt
            try:
                return post()
            except GithubException as error:
                problem = f"it answered {self.said(error)}"
                wait = self._wait(error, wait, what)
            except requests.RequestException as error:
                problem, hint = unanswered(error), hint_of(error)
            except UNFIT:
                problem = "its answer does not follow GitHub's API description"
            self.sleep(wait)
        raise MachineError(f"{what}: GitHub did not accept it in {ATTEMPTS} tries: {problem}", hint)

    def read(self, what: str, get: Callable[[], Written]) -> Written:
        """Read, and turn errors into ours.

        Raises:
            Refused: the token lacks the permission, or nothing was found.
            MachineError: GitHub cannot be reached or asks for too long a wait.
        """
        try:
            return self._again(get)
        except (GithubException, requests.RequestException, *UNFIT) as error:
            raise self._worded(error, what) from error

    def _again(self, get: Callable[[], Written]) -> Written:
        """Read, and retry if HTML came back, which PyGithub does not treat as an error."""
        for attempt in range(READ_TRIES - 1):
            try:
                return get()
            except Redirected:
                raise
            except NotGithubs:
                pass
            except GithubException as error:
                if isinstance(error.data, dict):
                    raise
            self.sleep(FIRST_WAIT_S * 2**attempt)
        return get()

    def said(self, error: GithubException) -> str:
        """Return the status and GitHub's message, without the token."""
        words = error.data.get("message") if isinstance(error.data, dict) else None
        return self.token.scrub(f"{error.status} {words}" if words else str(error.status))

    def _worded(self, error: Exception, what: str) -> Exception:
        """Return our error for a request's error."""
        if isinstance(error, requests.RequestException):
            return MachineError(f"{what}: {unanswered(error)}", hint_of(error))
        if not isinstance(error, GithubException):
            return MachineError(f"{what}: GitHub answered with unexpected JSON", ODD)
        asked = self._asked_to_wait(error)
        if asked is not None:
            wait = f"GitHub's rate limit is used up for another {asked:.0f} s"
            return MachineError(f"{what}: {wait}", LATER)
        if not isinstance(error.data, dict):
            return MachineError(f"{what}: {page(error.status)}", ODD)
        if error.status == 403 and "locked" in self.said(error):
            return MachineError(
                f"{what}: the conversation is locked, so nobody can comment",
                "unlock it, or set `comment: never`",
            )
        if error.status == 410:
            return MachineError(f"{what}: it was deleted on GitHub", AGAIN)
        if error.status in REFUSALS:
            return Refused(what, error.status, self.said(error))
        if error.status >= 500:
            return MachineError(f"{what}: GitHub has a server error ({self.said(error)})", LATER)
        return MachineError(f"{what}: GitHub refused it ({self.said(error)})")

    def _wait(self, error: GithubException, usual: float, what: str) -> float:
        """Return the seconds until the next try; raise if a retry cannot help."""
        asked = self._asked_to_wait(error)
        if asked is not None and asked <= PATIENCE_S:
            return asked
        if asked is None and error.status >= 500:
            return usual
        raise self._worded(error, what) from error

    def _asked_to_wait(self, error: GithubException) -> float | None:
        """Return the seconds that a rate limit asks for; None if the error is not one."""
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status not in (403, 429):
            return None
        asked = _seconds(headers.get("retry-after"))
        if asked is not None:
            return asked
        limited = isinstance(error, RateLimitExceededException) or error.status == 429
        if not limited:
            return None
        until = _seconds(headers.get("x-ratelimit-reset"))
        if headers.get("x-ratelimit-remaining") == "0" and until is not None:
            return max(1.0, until - self.clock() + 1.0)
        return 60.0


def _seconds(text: str | None) -> float | None:
    """Parse a header's whole seconds; None for anything else."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def unanswered(error: requests.RequestException) -> str:
    """Return why there is no answer from GitHub, without the library's text."""
    if isinstance(error, NotGithubs):
        return str(error)
    if isinstance(error, requests.exceptions.RetryError):
        if re.search(r"too many (403|429) error", str(error)):
            return "GitHub's rate limit outlasted the wait"
        return "GitHub answered every try with a server error"
    if isinstance(error, requests.Timeout):
        return f"GitHub did not answer within {TIMEOUT_S} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "GitHub's certificate is not accepted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not allow connections to GitHub"
    return "GitHub cannot be reached"


def hint_of(error: requests.RequestException) -> str:
    """Return what to do when there is no answer from GitHub."""
    return ODD if isinstance(error, NotGithubs) else AGAIN


def connect(
    token: Token,
    api_url: str,
    name: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    seconds_between_writes: float = 1.0,
    backoff_s: float = 0.5,
) -> Hub:
    """Return a client of the repository `name` at `api_url` (GITHUB_API_URL; on GHES it differs).

    Raises:
        MachineError: there is no token.
    """
    if not token:
        raise MachineError("there is no token for GitHub", "set the action's input `token`")
    # PyGithub logs its requests; keep them out of the job's log.
    logging.getLogger("github").setLevel(logging.ERROR)
    retry = GithubRetry(
        total=6,
        backoff_factor=backoff_s,
        allowed_methods=READS,
        max_rate_limit_wait=PATIENCE_S,
    )
    github = Github(
        auth=Auth.Token(token.reveal()),
        base_url=api_url.rstrip("/"),
        retry=retry,
        timeout=TIMEOUT_S,
        per_page=100,
        user_agent="rlhf-canary",
        seconds_between_requests=0.0,
        seconds_between_writes=seconds_between_writes,
    )
    only_github(github)
    known = {"url": f"/repos/{name}", "full_name": name}
    repository = Repository(github.requester, {}, known, completed=True)
    return Hub(github, repository, token, sleep, clock)


EMPTY = (202, 204, 205, 304)
"""Statuses whose answer may have no body."""
REDIRECTS = (301, 302, 303, 307, 308)
ODD = "run the job again; if it fails twice, check the proxy and GITHUB_API_URL"
"""Remedy for an answer that is not GitHub's."""


class NotGithubs(requests.RequestException):
    """An answer that did not come from GitHub's API; the message is ours."""


class Redirected(NotGithubs):
    """A redirect, which is not followed: the token goes nowhere else."""

    def __init__(self) -> None:
        super().__init__("GitHub redirects to another address")


def page(status: int) -> str:
    """Return the message for an HTML page, mostly from a proxy."""
    return f"GitHub answered {status} with a page that is not JSON"


def only_github(github: Github) -> None:
    """Make a client raise `NotGithubs` for answers that are not from GitHub's API."""
    requester = github.requester
    ask = requester.requestJson

    def asked(verb: str, url: str, *values: Any, **named: Any) -> tuple[int, dict[str, Any], str]:
        named["follow_302_redirect"] = False
        try:
            status, headers, body = ask(verb, url, *values, **named)
        except RuntimeError as error:  # PyGithub raises it for a 301 to another host.
            raise Redirected from error
        if status in REDIRECTS:
            raise Redirected
        _check(status, body)
        return status, headers, body

    requester.requestJson = asked  # type: ignore[method-assign]  # All its objects use it.


def _check(status: int, body: str) -> None:
    try:
        found = json.loads(body) if body else None
    except (ValueError, RecursionError):
        raise NotGithubs(page(status)) from None
    if status < 400:
        known = isinstance(found, dict | list) or (found is None and status in EMPTY)
    else:
        known = isinstance(found, dict) and isinstance(found.get("message"), str)
    if not known:
        raise NotGithubs(f"GitHub answered {status} with unexpected JSON")
