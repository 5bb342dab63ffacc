"""Git commands in a scratch repository of its own, never in the user's checkout.

No hook runs, and of the user's and the machine's configuration only what the way to the server
needs is taken over (proxies, certificates): no helper, alias or filter can run. A token travels in
the environment of the commands that talk to the server, and of no other; never among arguments.
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

from canary.baseline.refusals import GitFailed, Unreachable, shown
from canary.config.token import Token
from canary.errors import MachineError, UsageError
from canary.machine.git import Ended, run_git

TIMEOUT_S = 120.0
OLDEST = (2, 32)
"""The first git that takes configuration from the environment, and none from elsewhere if told."""
KEPT = re.compile(r"GIT_(SSL_\w+|SSH|SSH_COMMAND|SSH_VARIANT|PROXY_SSL_\w+|EXEC_PATH)")
"""Variables of git's own that say how to reach a server, and no more."""
CARRIED = (
    r"^safe\.directory$|^http\.(.*\.)?(proxy|proxyauthmethod|proxyssl[a-z]+|sslcainfo|sslcapath|sslverify"
    r"|sslbackend|sslversion|sslcert|sslkey|schannel[a-z]+|version)$"
)
"""Keys of the user's configuration that say how to reach a server, and whose folders to read."""
FIXED = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
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
"""The commands that talk to the server, and are given the token for it."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Scratch:
    """A bare repository that lives as long as one operation."""

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
        """Runs one command.

        Raises:
            GitFailed: carries what it said, without the token.
            Unreachable: it took longer than `timeout_s` seconds.
            UsageError: git is not installed.
        """
        given_to = self.talking if arguments[0] in TALKING else self.environ
        environ = {**given_to, "GIT_DIR": str(self.folder), **(extra or {})}
        return self._run(arguments, self.folder, environ, given, timeout_s)

    def reading(self, checkout: Path, *arguments: str, given: bytes = b"") -> Ended:
        """Runs one command in a user's repository, for commands that only read.

        Raises:
            as `git`.
        """
        # A partial clone would fetch what it lacks, by the programs that its configuration names.
        environ = {**self.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
        return self._run(arguments, checkout, environ, given, TIMEOUT_S)

    def _run(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        environ: Mapping[str, str],
        given: bytes,
        timeout_s: float,
    ) -> Ended:
        done = run_git(folder, *arguments, environ=environ, given=given, timeout_s=timeout_s)
        if done.code is None:
            raise Unreachable(
                f"git {arguments[0]} did not end in {timeout_s:.0f} s",
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
    """An empty repository whose commands may talk to `url` with a token, removed at the end.

    Raises:
        UsageError: git is not installed.
        MachineError: git is too old, or there is no place for the repository.
    """
    environ = os.environ if environ is None else environ
    token = token or Token()
    try:
        place = tempfile.TemporaryDirectory(prefix="canary-git-", ignore_cleanup_errors=True)
    except OSError as error:
        raise MachineError(f"no place for a scratch repository: {error.strerror}") from error
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
    """The surroundings without git's own variables, configuration files and prompts."""
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
    """MachineError for a git that would read more configuration than it is told to."""
    out = run_git(folder, "version", environ=environ, timeout_s=TIMEOUT_S).out
    found = re.search(rb"(\d+)\.(\d+)", out)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise MachineError(
            f"{out.decode(errors='replace').strip()} is too old",
            "install git {}.{} or newer".format(*OLDEST),
        )


def _carried(folder: Path, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Proxies and certificates of the user's and the machine's configuration."""
    asked = {name: value for name, value in environ.items() if name != "GIT_DIR"}
    asked["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    command = ("config", "-z", "--get-regexp", CARRIED)
    out = run_git(folder, *command, environ=asked, timeout_s=TIMEOUT_S).out
    lines = [line.decode("utf-8", errors="replace") for line in out.split(b"\0") if line]
    return [(key, value) for key, _, value in (line.partition("\n") for line in lines)]


def authorization(url: str, token: Token) -> list[tuple[str, str]]:
    """Configuration that sends the token to the URL's own server, and to no other.

    Raises:
        UsageError: it would travel readable for all.
    """
    parts = urlsplit(url)
    if not token or parts.scheme not in ("http", "https"):
        return []
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise UsageError(f"{shown(url)} would carry the token unencrypted", "use https")
    server = f"{parts.scheme}://{parts.netloc}/"
    return [
        (f"http.{server}.extraheader", f"AUTHORIZATION: basic {token.basic()}"),
        ("http.followRedirects", "false"),
    ]


def configuration(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Configuration as variables of the environment."""
    numbered = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for place, (key, value) in enumerate(pairs):
        numbered[f"GIT_CONFIG_KEY_{place}"] = key
        numbered[f"GIT_CONFIG_VALUE_{place}"] = value
    return numbered
