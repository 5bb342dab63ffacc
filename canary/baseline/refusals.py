"""Errors of git for a remote that cannot be read or written, sorted by cause, one line each.

MachineError
├── GitFailed           a git command failed; carries what it said
├── Unreachable         no server answers
├── Refused             the server denies access: no token, a wrong one, or one that may not write
└── Unreadable          the repository is missing or not visible to this token
"""

from __future__ import annotations

import re

from canary.errors import MachineError

CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
QUERY = re.compile(r"(?<=://)(\S*?)\?\S*")
LONGEST = 300

UNREACHABLE = re.compile(
    r"could not resolve|couldn't connect|failed to connect|connection refused|connection timed out"
    r"|no route to host|network is unreachable|unable to look up|operation timed out"
    r"|could not resolve proxy|ssl certificate|certificate verif",
    re.IGNORECASE,
)
NO_CREDENTIALS = re.compile(
    r"could not read (username|password)|authentication failed|error: 401"
    r"|invalid username or (password|token)|permission denied \(|host key verification failed",
    re.IGNORECASE,
)
FORBIDDEN = re.compile(
    r"error: 403|permission to \S+ denied|write access to repository not granted"
    r"|service not enabled|access denied or",
    re.IGNORECASE,
)
ABSENT = re.compile(
    r"repository .* not found|does not appear to be a git repository|repository not found"
    r"|error: 404|does not exist|not valid: is this a git repository",
    re.IGNORECASE,
)
PASSING = re.compile(
    r"error: 5\d\d|http 5\d\d|http 429|error: 429|unexpected disconnect|hung up unexpectedly"
    r"|connection was reset|connection reset|empty reply|early eof|not our ref"
    r"|gnutls_handshake|transfer closed",
    re.IGNORECASE,
)
"""Failures that may not happen again on another try."""


class GitFailed(MachineError):
    """A git command failed. `said` is its whole output, without secrets."""

    def __init__(self, command: str, said: str, code: int) -> None:
        super().__init__(f"git {command} failed: {telling_line(said) or f'exit code {code}'}")
        self.command = command
        self.said = said


class Unreachable(MachineError):
    """No server answers in time."""


class Refused(MachineError):
    """The server denies access."""


class Unreadable(MachineError):
    """The repository is missing or not visible to this token."""


def shown(url: str) -> str:
    """Return a URL for messages, without credentials and query."""
    return QUERY.sub(r"\1", CREDENTIALS.sub("", url))


def telling_line(said: str) -> str:
    """Return the most useful line, shortened: why a ref was rejected, or the first error of git or
    the server. Later errors are consequences or advice."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    rejected = [line for line in lines if line.startswith("!")]
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "remote: error:"))]
    chosen = (rejected or errors or lines[-1:] or [""])[0]
    return shown(" ".join(chosen.split()))[:LONGEST]


def explained(failure: GitFailed, url: str, *, writing: bool, token: bool) -> MachineError:
    """Return the error of a command that talked to a remote, with a remedy if the cause is known.

    `token`: whether one was sent.
    """
    where, said = shown(url), telling_line(failure.said)
    if FORBIDDEN.search(failure.said) or (writing and NO_CREDENTIALS.search(failure.said)):
        scope = "write" if writing else "read"
        return Refused(
            f"no permission to {scope} {where}: {said}",
            f"give the job `permissions: contents: {scope}`, or put such a token into CANARY_TOKEN",
        )
    if NO_CREDENTIALS.search(failure.said):
        wish = "does not accept the token" if token else "asks for a token"
        return Refused(
            f"{where} {wish}: {said}",
            "set GITHUB_TOKEN or CANARY_TOKEN to a token with `contents: read`",
        )
    if UNREACHABLE.search(failure.said):
        return Unreachable(f"cannot reach {where}: {said}", "check the network and the remote")
    if ABSENT.search(failure.said):
        return Unreadable(
            f"no repository at {where}, or the token may not see it: {said}",
            "check the remote; a private repository needs a token with `contents: read`",
        )
    return failure


def passing(failure: GitFailed) -> bool:
    """Return whether another try may succeed."""
    return bool(PASSING.search(failure.said)) and not FORBIDDEN.search(failure.said)
