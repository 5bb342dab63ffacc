"""What git says when a remote cannot be read or written, told apart and made into one line each.

MachineError
├── GitFailed           a git command failed; carries what it said
├── Unreachable         no server there, or none that answers
├── Refused             the server does not let us: no token, a wrong one, or one that may not write
└── Unreadable          there is no such repository, or not for this token
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
"""Failures that another try may not meet."""


class GitFailed(MachineError):
    """A git command that failed. `said` is all of its output, without secrets."""

    def __init__(self, command: str, said: str, code: int) -> None:
        super().__init__(f"git {command} failed: {telling_line(said) or f'exit code {code}'}")
        self.command = command
        self.said = said


class Unreachable(MachineError):
    """No server there, or none that answers in time."""


class Refused(MachineError):
    """The server knows us not, or does not let us."""


class Unreadable(MachineError):
    """There is no such repository, or none that this token may see."""


def shown(url: str) -> str:
    """A URL as it may be shown: without credentials and query."""
    return QUERY.sub(r"\1", CREDENTIALS.sub("", url))


def telling_line(said: str) -> str:
    """The line that says most, shortened: why a ref was rejected, or git's or the server's first
    error. What follows that is its consequence, or advice."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    rejected = [line for line in lines if line.startswith("!")]
    own = [line for line in lines if line.startswith(("fatal:", "error:", "remote: error:"))]
    chosen = (rejected or own or lines[-1:] or [""])[0]
    return shown(" ".join(chosen.split()))[:LONGEST]


def explained(failure: GitFailed, url: str, *, writing: bool, token: bool) -> MachineError:
    """The failure of a command that talked to a remote, with what to do about it; the failure
    itself where nothing is known of it. `token`: whether one was sent."""
    where, said = shown(url), telling_line(failure.said)
    if FORBIDDEN.search(failure.said) or (writing and NO_CREDENTIALS.search(failure.said)):
        scope = "write" if writing else "read"
        return Refused(
            f"no permission to {scope} {where}: {said}",
            f"give the job `permissions: contents: {scope}`, or a token that may in CANARY_TOKEN",
        )
    if NO_CREDENTIALS.search(failure.said):
        wish = "does not accept the token" if token else "asks for a token"
        return Refused(
            f"{where} {wish}: {said}",
            "set GITHUB_TOKEN or CANARY_TOKEN to one with `contents: read`",
        )
    if UNREACHABLE.search(failure.said):
        return Unreachable(f"cannot reach {where}: {said}", "check the network and the remote")
    if ABSENT.search(failure.said):
        return Unreadable(
            f"no repository at {where}, or none that we may see: {said}",
            "check the remote; a private repository needs a token with `contents: read`",
        )
    return failure


def passing(failure: GitFailed) -> bool:
    """Whether another try may succeed."""
    return bool(PASSING.search(failure.said)) and not FORBIDDEN.search(failure.said)
