"""GitHub through PyGithub: reads are retried by the library, writes by us, and never blindly.

A write that GitHub answers with 502 may have been carried out. So before a write is tried again,
its effect is looked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import requests
from github import Auth, Github, GithubRetry
from github.GithubException import (
    GithubException,
    RateLimitExceededException,
    UnknownObjectException,
)
from urllib3.util.retry import Retry

from canary.config.token import Token
from canary.errors import MachineError

Written = TypeVar("Written")

READS = Retry.DEFAULT_ALLOWED_METHODS - {"PUT", "DELETE"}
ATTEMPTS = 4
FIRST_WAIT_S = 2.0
PATIENCE_S = 300.0
"""Longest wait for a rate limit; beyond it the answer stays in the step summary."""
TIMEOUT_S = 30

REFUSALS = (401, 403, 404)
"""What a token that may not write is told; 404 for what it may not even see."""


class Refused(Exception):
    """GitHub does not let this token do it; `what` says what was tried."""

    def __init__(self, what: str, status: int, said: str) -> None:
        super().__init__(f"{what}: GitHub answered {status}: {said}")
        self.what = what
        self.status = status


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
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                found = self.read(what, find)
                if found is not None:
                    return found
            try:
                return post()
            except GithubException as error:
                problem = self.said(error)
                wait = self._wait(error, attempt, what)
            except requests.RequestException as error:
                problem = self.token.scrub(str(error))
                wait = FIRST_WAIT_S * 2**attempt
            self.sleep(wait)
        raise MachineError(
            f"{what}: GitHub did not take it in {ATTEMPTS} tries: {problem}",
            "the answer is in the step summary; run the job again",
        )

    def read(self, what: str, get: Callable[[], Written]) -> Written:
        """A read, its errors in our words.

        Raises:
            Refused: the token may not, or there is nothing.
            MachineError: GitHub cannot be reached or asks for too long a wait.
        """
        try:
            return get()
        except GithubException as error:
            if error.status in REFUSALS and not isinstance(error, RateLimitExceededException):
                raise Refused(what, error.status, self.said(error)) from error
            raise MachineError(f"{what}: {self.said(error)}", "run the job again") from error
        except requests.RequestException as error:
            raise MachineError(
                f"{what}: GitHub cannot be reached: {self.token.scrub(str(error))}",
                "run the job again",
            ) from error

    def said(self, error: GithubException) -> str:
        """GitHub's own words, without the token."""
        data = error.data if isinstance(error.data, dict) else {}
        message = error.message or data.get("message") or type(error).__name__
        return self.token.scrub(f"{error.status} {message}")

    def _wait(self, error: GithubException, attempt: int, what: str) -> float:
        """Seconds until the next try; raises where no further try can help."""
        asked = self._asked_to_wait(error)
        if asked is not None:
            if asked > self.patience_s:
                raise MachineError(
                    f"{what}: GitHub's rate limit asks for {asked:.0f} s of patience",
                    "the answer is in the step summary; run the job again later",
                ) from error
            return asked
        if error.status >= 500:
            return FIRST_WAIT_S * float(2**attempt)
        if error.status in REFUSALS:
            raise Refused(what, error.status, self.said(error)) from error
        raise MachineError(f"{what}: GitHub refused it: {self.said(error)}") from error

    def _asked_to_wait(self, error: GithubException) -> float | None:
        """Seconds that a rate limit asks for; None where it is none."""
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if error.status not in (403, 429):
            return None
        if headers.get("retry-after", "").isdigit():
            return float(str(headers["retry-after"]))
        limited = isinstance(error, RateLimitExceededException) or error.status == 429
        if not limited:
            return None
        if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset"):
            return max(1.0, float(headers["x-ratelimit-reset"]) - self.clock() + 1.0)
        return 60.0


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
    return Hub(github, token, sleep, clock, patience_s)


def not_there(error: Exception) -> bool:
    """Whether a read found nothing."""
    return isinstance(error, UnknownObjectException)
