"""The remote, the token, the right to write, and a run's context: from the checkout or the job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from canary.baseline.branch import BRANCH, Remote
from canary.baseline.entry import Accepted, Context
from canary.baseline.git import CREDENTIALS, TIMEOUT_S
from canary.config.token import USER, USER_VARIABLE, Token
from canary.errors import UsageError
from canary.machine.git import run_git
from canary.record.types import RunRecord

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")
GITHUB = "https://github.com"
SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a verb. Only the top level makes the real ones."""

    environ: Mapping[str, str]
    folder: Path
    now: datetime

    @staticmethod
    def real() -> Surroundings:
        """Return this process's environment, folder and time."""
        return Surroundings(os.environ, Path.cwd(), datetime.now(UTC))


def event_of(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the event of GitHub's job; None if there is none."""
    path = environ.get("GITHUB_EVENT_PATH")
    if not path:
        return None
    try:
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None  # The policy refuses if it needs more.
    return event if isinstance(event, dict) else None


def remote_of(here: Surroundings, given: str | None, branch: str = BRANCH) -> Remote:
    """Return the remote, from its address, its name in the checkout, or GitHub's job.

    Raises:
        UsageError: there is no such remote.
    """
    server, repository = (here.environ.get(f"GITHUB_{key}") for key in ("SERVER_URL", "REPOSITORY"))
    if given is None and server and repository:
        url = f"{server}/{repository}.git"
    elif given is not None and (":" in given or Path(here.folder, given).is_dir()):
        url = given if ":" in given else str(Path(here.folder, given).resolve())
    else:
        url = _named(here, given or "origin")
    return Remote(url, branch, token_for(url, here.environ))


def _named(here: Surroundings, name: str) -> str:
    """Return the address of a checkout's remote, without credentials."""
    if not NAME.fullmatch(name):
        raise UsageError(f"--remote {name!r} is neither an address nor the name of a remote")
    asked = ("remote", "get-url", "--push", name)
    done = run_git(here.folder, *asked, environ=here.environ, timeout_s=TIMEOUT_S)
    if done.code != 0:
        raise UsageError(
            f"{here.folder} has no remote {name!r}", "name the repository with --remote URL"
        )
    return CREDENTIALS.sub("", done.text) if done.text.startswith("http") else done.text


def token_for(url: str, environ: Mapping[str, str]) -> Token | None:
    """Return CANARY_TOKEN, or GITHUB_TOKEN if the URL is on the job's GitHub server.

    Raises:
        UsageError: CANARY_TOKEN_USER is not a user name.
    """
    if environ.get("CANARY_TOKEN"):
        return Token(environ["CANARY_TOKEN"], environ.get(USER_VARIABLE) or USER)
    server, asked = urlsplit(environ.get("GITHUB_SERVER_URL") or GITHUB), urlsplit(url)
    same = (asked.scheme, asked.netloc) == (server.scheme, server.netloc)
    if environ.get("GITHUB_TOKEN") and same:
        return Token(environ["GITHUB_TOKEN"])
    return None


def context_of_run(record: RunRecord, here: Surroundings, accept: str | None) -> Context:
    """Return a run's context: on GitHub from the job, else from the checkout."""
    environ, sha = here.environ, str(record.git.get("sha") or "")
    ref = environ.get("GITHUB_REF", "")
    if environ.get("GITHUB_EVENT_NAME"):
        sha = environ.get("GITHUB_SHA", "")
    parts = [environ.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    by = environ.get("GITHUB_ACTOR") or environ.get("USER") or "unknown"
    return Context(
        commit=sha if SHA.fullmatch(sha) else "",
        ref=ref or str(record.git.get("branch") or ""),
        run_url="{}/{}/actions/runs/{}".format(*parts) if all(parts) else "",
        accepted=Accepted(by=by, reason=accept) if accept else None,
        stored=here.now.astimezone(UTC).isoformat(timespec="seconds"),
    )


WRITING = ("push", "schedule", "workflow_dispatch")
"""Events that run a commit of the branch that they name."""
HEADS = "refs/heads/"


def require_writer(environ: Mapping[str, str], event: Mapping[str, Any] | None) -> None:
    """Return if the baseline may be written. Outside GitHub, a person may always write it.

    `environ`: the process's environment. `event`: the content of GITHUB_EVENT_PATH.

    Raises:
        UsageError: it may not; says why.
    """
    name = environ.get("GITHUB_EVENT_NAME", "")
    if not name and environ.get("GITHUB_ACTIONS") != "true":
        return
    reason = _refusal(name, environ.get("GITHUB_REF", ""), event or {})
    if reason:
        raise UsageError(
            f"{reason} may not write the baseline",
            "only push, schedule and workflow_dispatch on the default branch may",
        )


def _refusal(name: str, ref: str, event: Mapping[str, Any]) -> str:
    """Return what may not write, or an empty text."""
    if name not in WRITING:
        return f"event {name}" if name else "an event without a name"
    default = _text(event, "repository", "default_branch")
    if not default:
        # A schedule runs only on the default branch, and its payload may be short.
        return "" if name == "schedule" else f"{name} without a known default branch"
    refs = {one for one in (ref, _text(event, "ref")) if one.startswith("refs/")}
    if name == "schedule" and not refs:
        return ""
    if refs != {HEADS + default}:
        where = ", ".join(sorted(refs - {HEADS + default})) or "no branch"
        return f"{name} on {where}"
    return ""


def _text(event: Mapping[str, Any], *keys: str) -> str:
    """Return a text from the event, or an empty one."""
    inner: Any = event
    for key in keys:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    return inner if isinstance(inner, str) else ""
