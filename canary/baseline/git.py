"""Git commands in a scratch repository, never in the user's checkout.

No hook, helper, alias or filter can run: only the configuration that reaches the server (proxies,
certificates) is taken from the user and the machine. A token is in the environment of the commands
that talk to the server, and nowhere else; it is never an argument.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from canary.config.token import Token
from canary.errors import MachineError, UsageError
from canary.machine.git import Ended, run_git

TIMEOUT_S = 120.0
OLDEST = (2, 32)
"""The first git that reads configuration from the environment and can ignore all other."""
KEPT = re.compile(r"GIT_(SSL_\w+|SSH|SSH_COMMAND|SSH_VARIANT|PROXY_SSL_\w+|EXEC_PATH)")
"""Git's variables that only say how to reach a server."""
CARRIED = (
    r"^safe\.directory$|^http\.(.*\.)?(proxy|proxyauthmethod|proxyssl[a-z]+|sslcainfo|sslcapath|sslverify"
    r"|sslbackend|sslversion|sslcert|sslkey|schannel[a-z]+|version)$"
)
"""The user's configuration keys for reaching a server and for trusting folders of others."""
FIXED = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", os.devnull),
    ("core.excludesFile", os.devnull),
    ("core.askPass", ""),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.version", "2"),
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "60"),
    ("advice.detachedHead", "false"),
    ("init.defaultBranch", "scratch"),
)
IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "rlhf-canary"), ("EMAIL", "rlhf-canary@users.noreply.invalid"))
}
TALKING = ("fetch", "ls-remote", "push")
"""The commands that talk to the server and get its token."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Scratch:
    """A bare repository for one operation."""

    folder: Path
    environ: Mapping[str, str] = field(repr=False)
    talking: Mapping[str, str] = field(repr=False)
    """The environment of the commands that talk to the server."""
    token: Token = field(repr=False, default_factory=Token)

    def git(
        self,
        *arguments: str,
        given: bytes = b"",
        timeout_s: float = TIMEOUT_S,
        extra: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run one command.

        Raises:
            GitFailed: the command failed; the error has its output without the token.
            MachineError: it took longer than `timeout_s` seconds.
            UsageError: git is not installed.
        """
        base = self.talking if arguments[0] in TALKING else self.environ
        environ = {**base, "GIT_DIR": str(self.folder), **(extra or {})}
        done = run_git(self.folder, *arguments, environ=environ, given=given, timeout_s=timeout_s)
        if done.code is None:
            raise MachineError(
                f"git {arguments[0]} did not end within {timeout_s:.0f} s",
                "check the network and the size of the repository",
            )
        if done.code != 0:
            said = (done.err + b"\n" + done.out).decode("utf-8", errors="replace")
            raise GitFailed(arguments[0], self.token.scrub(shown(said)), done.code)
        return done


@contextlib.contextmanager
def scratch_repository(
    url: str = "", token: Token | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Scratch]:
    """Yield an empty repository whose commands may talk to `url` with a token; then remove it.

    Raises:
        UsageError: git is not installed.
        MachineError: git is too old, or the repository cannot be made.
    """
    environ = os.environ if environ is None else environ
    token = token or Token()
    try:
        place = tempfile.TemporaryDirectory(prefix="canary-git-", ignore_cleanup_errors=True)
    except OSError as error:
        raise MachineError(f"cannot make a scratch repository: {error.strerror}") from error
    with place as name:
        folder = Path(name) / "scratch.git"
        folder.mkdir()
        bare = _isolated(environ)
        require_recent(folder, bare)
        carried = _carried(folder, environ)
        pairs = [*carried, *FIXED]
        local, talking = (
            {**bare, **IDENTITY, **configuration([*pairs, *more])}
            for more in ((), authorization(url, token))
        )
        scratch = Scratch(folder, local, talking, token)
        scratch.git("init", "--bare", "--quiet", "--template=", str(folder))
        yield scratch


def _isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without git's variables, configuration files and prompts."""
    kept = {
        name: value
        for name, value in environ.items()
        if (not name.startswith("GIT_") or KEPT.fullmatch(name))
        and name not in ("SSH_ASKPASS", "LANGUAGE")
    }
    return {
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        **kept,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_NO_LAZY_FETCH": "1",
    }


def require_recent(folder: Path, environ: Mapping[str, str]) -> None:
    """Raise MachineError for a git that is too old to ignore other configuration."""
    out = run_git(folder, "version", environ=environ, timeout_s=TIMEOUT_S).out
    found = re.search(rb"(\d+)\.(\d+)", out)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise MachineError(
            f"{out.decode(errors='replace').strip()} is too old",
            "install git {}.{} or newer".format(*OLDEST),
        )


def _carried(folder: Path, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the CARRIED keys of the user's and the machine's configuration."""
    asked = {name: value for name, value in environ.items() if name != "GIT_DIR"}
    asked["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    command = ("config", "-z", "--get-regexp", CARRIED)
    out = run_git(folder, *command, environ=asked, timeout_s=TIMEOUT_S).out
    lines = [line.decode("utf-8", errors="replace") for line in out.split(b"\0") if line]
    return [(key, value) for key, _, value in (line.partition("\n") for line in lines)]


def authorization(url: str, token: Token) -> list[tuple[str, str]]:
    """Return configuration that sends the token only to the URL's server.

    Raises:
        UsageError: the token would be sent unencrypted.
    """
    parts = urlsplit(url)
    if not token or parts.scheme not in ("http", "https"):
        return []
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise UsageError(f"{shown(url)} would send the token unencrypted", "use https")
    server = f"{parts.scheme}://{parts.netloc}/"
    return [
        (f"http.{server}.extraheader", f"AUTHORIZATION: basic {token.basic()}"),
        ("http.followRedirects", "false"),
    ]


def configuration(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return configuration as environment variables."""
    numbered = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for place, (key, value) in enumerate(pairs):
        numbered[f"GIT_CONFIG_KEY_{place}"] = key
        numbered[f"GIT_CONFIG_VALUE_{place}"] = value
    return numbered


CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
QUERY = re.compile(r"(?<=://)(\S*?)\?\S*")
LONGEST = 300

DENIED = re.compile(
    r"could not read (username|password)|authentication failed|error: 40[13]"
    r"|invalid username or (password|token)|permission denied \(|host key verification failed"
    r"|permission to \S+ denied|write access to repository not granted"
    r"|service not enabled|access denied or",
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


def explained(failure: GitFailed, url: str, *, writing: bool) -> MachineError:
    """Return the error of a command that talked to a remote, with what to check."""
    scope = "write" if writing else "read"
    what = f"cannot {scope} {shown(url)}: {telling_line(failure.said)}"
    if DENIED.search(failure.said):
        return MachineError(
            what,
            f"give the job `permissions: contents: {scope}`, or put such a token into CANARY_TOKEN",
        )
    return MachineError(
        what, "check remote and network; a private repository needs a token in CANARY_TOKEN"
    )


def passing(failure: GitFailed) -> bool:
    """Return whether another try may succeed."""
    return bool(PASSING.search(failure.said)) and not DENIED.search(failure.said)
