"""GitHub through PyGithub: reads are retried by the library, writes by us, and never blindly.

A write that GitHub answers with 502 may have been carried out. So before a write is tried again,
its effect is looked for.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import requests
from github import Auth, Github, GithubRetry
from github.GithubException import (
    BadAttributeException,
    GithubException,
    RateLimitExceededException,
    UnknownObjectException,
)
from urllib3.util.retry import Retry

from canary.config.token import Token
from canary.errors import MachineError
from canary.github.wire import ODD, NotGithubs, Redirected, only_github, page

Written = TypeVar("Written")

READS = Retry.DEFAULT_ALLOWED_METHODS - {"PUT", "DELETE"}
ATTEMPTS = 4
READ_TRIES = 3
FIRST_WAIT_S = 2.0
PATIENCE_S = 300.0
"""Longest wait for a rate limit; beyond it the answer stays in the step summary."""
TIMEOUT_S = 30

REFUSALS = {
    401: "GitHub does not accept the token",
    403: "GitHub refuses this token",
    404: "GitHub finds nothing there: it was deleted, or this token may not see it",
}
"""What a token that may not write is told; 404 for what it may not even see."""
UNFIT = (
    AssertionError,
    AttributeError,
    BadAttributeException,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What PyGithub raises for JSON that is not of the kind that GitHub describes."""
AGAIN = "run the job again"
LATER = "run the job again later"


class Refused(Exception):
    """GitHub does not let this token do it; `said` is GitHub's own answer."""

    def __init__(self, what: str, status: int, said: str) -> None:
        super().__init__(f"{what}: {REFUSALS[status]} ({said})")
        self.status = status
        self.said = said


@dataclass(frozen=True)
class Hub:
    """The way to one GitHub; `sleep` and `clock` are arguments for tests."""

    github: Github
    token: Token = field(repr=False)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    patience_s: float = PATIENCE_S

    def write(
        self, what: str, find: Callable[[], Written | None], post: Callable[[], Written]
    ) -> Written:
        """Posts once: before every further try, `find` looks whether the last one took effect.

        Raises:
            Refused: the token may not.
            MachineError: GitHub did not take it in so many tries, or asks for too long a wait.
        """
        problem, hint = "", AGAIN
        for attempt in range(ATTEMPTS):
            if attempt:
                found = self.read(what, find)
                if found is not None:
                    return found
            try:
                return post()
            except GithubException as error:
                problem, hint = f"it answered {self.said(error)}", AGAIN
                wait = self._wait(error, attempt, what)
            except requests.RequestException as error:
                problem, hint = unanswered(error), hint_of(error)
                wait = FIRST_WAIT_S * 2**attempt
            except UNFIT:
                problem = "it answered in a form that GitHub does not describe"
                wait = FIRST_WAIT_S * 2**attempt
            self.sleep(wait)
        raise MachineError(f"{what}: GitHub did not take it in {ATTEMPTS} tries: {problem}", hint)

    def read(self, what: str, get: Callable[[], Written]) -> Written:
        """A read, its errors in our words.

        Raises:
            Refused: the token may not, or there is nothing.
            MachineError: GitHub cannot be reached or asks for too long a wait.
        """
        try:
            return self._again(get)
        except GithubException as error:
            raise self._worded(error, what) from error
        except requests.RequestException as error:
            raise MachineError(f"{what}: {unanswered(error)}", hint_of(error)) from error
        except UNFIT as error:
            raise _unfit(what) from error

    def _again(self, get: Callable[[], Written]) -> Written:
        """A read that is tried again where a page of HTML came: to PyGithub that is no error."""
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
        """GitHub's own words behind the status, without the token; the library has none here."""
        words = error.data.get("message") if isinstance(error.data, dict) else None
        return self.token.scrub(f"{error.status} {words}" if words else str(error.status))

    def _worded(self, error: GithubException, what: str) -> Exception:
        """The error of one request, told apart."""
        asked = self._asked_to_wait(error)
        if asked is not None:
            wait = f"GitHub's rate limit is used up for {asked:.0f} s more"
            return MachineError(f"{what}: {wait}", LATER)
        if not isinstance(error.data, dict):
            return MachineError(f"{what}: {page(error.status)}", ODD)
        if error.status == 403 and "locked" in self.said(error):
            return MachineError(
                f"{what}: the conversation is locked, so GitHub takes no comment",
                "unlock it, or set `comment: false`",
            )
        if error.status == 410:
            return MachineError(f"{what}: it was deleted on GitHub", AGAIN)
        if error.status in REFUSALS:
            return Refused(what, error.status, self.said(error))
        if error.status >= 500:
            return MachineError(f"{what}: GitHub is in trouble ({self.said(error)})", LATER)
        return MachineError(f"{what}: GitHub refused it ({self.said(error)})")

    def _wait(self, error: GithubException, attempt: int, what: str) -> float:
        """Seconds until the next try; raises where no further try can help."""
        asked = self._asked_to_wait(error)
        if asked is not None and asked <= self.patience_s:
            return asked
        if asked is None and error.status >= 500:
            return FIRST_WAIT_S * float(2**attempt)
        raise self._worded(error, what) from error

    def _asked_to_wait(self, error: GithubException) -> float | None:
        """Seconds that a rate limit asks for; None where it is none."""
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
    """A header's whole seconds; None for anything else."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def unanswered(error: requests.RequestException) -> str:
    """Why there is no answer of GitHub's, in a sentence of ours."""
    if isinstance(error, NotGithubs):
        return str(error)
    if isinstance(error, requests.exceptions.RetryError):
        if re.search(r"too many (403|429) error", str(error)):
            return "GitHub's rate limit did not end while we waited"
        return "GitHub answered every try with a server error"
    if isinstance(error, requests.Timeout):
        return f"GitHub did not answer within {TIMEOUT_S} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "GitHub's certificate is not accepted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not let us through to GitHub"
    return "GitHub cannot be reached"


def hint_of(error: requests.RequestException) -> str:
    """What to do where there is no answer of GitHub's."""
    return ODD if isinstance(error, NotGithubs) else AGAIN


def _unfit(what: str) -> MachineError:
    return MachineError(f"{what}: GitHub answered with JSON of an unknown kind", ODD)


def connect(
    token: Token,
    api_url: str,
    *,
    patience_s: float = PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    seconds_between_writes: float = 1.0,
    backoff_s: float = 0.5,
) -> Hub:
    """The way to the GitHub at `api_url` (GITHUB_API_URL; GHES has its own).

    Raises:
        MachineError: there is no token.
    """
    if not token:
        raise MachineError("there is no token for GitHub", "give the action `token`")
    # PyGithub prints requests on its loggers; they are nobody's business here.
    logging.getLogger("github").setLevel(logging.ERROR)
    retry = GithubRetry(
        total=6,
        backoff_factor=backoff_s,
        allowed_methods=READS,
        max_rate_limit_wait=patience_s,
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
    only_github(github, api_url.rstrip("/"))
    return Hub(github, token, sleep, clock, patience_s)


def not_there(error: Exception) -> bool:
    """Whether a read found nothing."""
    return isinstance(error, UnknownObjectException)
