"""The baseline branch: a history in a git repository, always one commit without a parent.

It is read and written from a scratch repository, never in the user's checkout. A write replaces the
branch only where it still is what was read (compare-and-swap), and is tried again where another
writer was faster. What cannot be read is an error and never an empty history.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from canary.baseline.git import Scratch, scratch_repository
from canary.baseline.history import VERSION, is_history, prune
from canary.baseline.layout import check_content, check_listing, files_of, parse_listing
from canary.baseline.refusals import (
    CREDENTIALS,
    GitFailed,
    Refused,
    Unreadable,
    explained,
    passing,
    shown,
    telling_line,
)
from canary.config.token import Token
from canary.errors import CanaryError, InputError, MachineError, RecordError, UsageError

BRANCH = "canary-baselines"
KEEP = 50
"""Runs kept of each canary and machine."""
ATTEMPTS = 12
TIP = "refs/canary/tip"
BRANCH_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|[./](?=[A-Za-z0-9_-])){0,199}")
MISSING = re.compile(r"couldn't find remote ref", re.IGNORECASE)
OVERTAKEN = re.compile(
    r"\[rejected\]|stale info|cannot lock ref|failed to update ref|failed to lock|fetch first"
    r"|reference already exists|incorrect old value|unable to (create|lock)|non-fast-forward",
    re.IGNORECASE,
)
PROTECTED = re.compile(r"GH006|GH013|protected branch|hook declined|rule violations|prohibited")


@dataclass(frozen=True)
class Remote:
    """A branch of a repository, and the token that may read or write it."""

    url: str
    branch: str = BRANCH
    token: Token | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.url.strip() or self.url.startswith("-") or not self.url.isprintable():
            raise UsageError(
                f"{shown(self.url)!r} is not the address of a repository", "give --remote"
            )
        if self.url.startswith("http") and CREDENTIALS.search(self.url):
            raise UsageError(
                f"the address of {shown(self.url)} holds credentials",
                "take them out of it and set CANARY_TOKEN",
            )
        if not BRANCH_NAME.fullmatch(self.branch) or self.branch.endswith(".lock"):
            raise UsageError(f"baseline branch {self.branch!r} is not a valid branch name")

    @property
    def ref(self) -> str:
        """The branch's full name."""
        return f"refs/heads/{self.branch}"

    def __str__(self) -> str:
        return f"branch {self.branch} of {shown(self.url)}"


@dataclass(frozen=True)
class Pushed:
    """The branch after a write."""

    sha: str
    tries: int


def pull(
    remote: Remote,
    folder: Path,
    *,
    inhabited: bool = False,
    environ: Mapping[str, str] | None = None,
) -> str | None:
    """Writes the branch's history into an empty folder and returns the branch's commit; None where
    the repository has no such branch.

    `inhabited`: the repository has commits, so that an answer without any branch is not git's.

    Raises:
        MachineError: the repository cannot be read.
        RecordError: the branch holds something else than a history.
        InputError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty", "name a new folder")
    with scratch_repository(remote.url, remote.token, environ) as scratch:
        return _pull(scratch, remote, folder, inhabited)


def push(
    remote: Remote,
    change: Callable[[Path], None],
    *,
    message: str,
    keep: int | None = KEEP,
    attempts: int = ATTEMPTS,
    wait: Callable[[int], None] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Pushed:
    """Lets `change` work on the branch's history, in a folder, and replaces the branch by what it
    left, bounded to `keep` runs of each canary and machine. `change` is called anew for each try.

    `wait` passes the time after a try that was overtaken, by its number.

    Raises:
        MachineError: the repository cannot be read or written, or others were faster every time.
        RecordError: the branch holds something else than a history; it is left as it is.
    """
    wait, overtaken = wait or _wait, ""
    with scratch_repository(remote.url, remote.token, environ) as scratch:
        for number in range(1, attempts + 1):
            if number > 1:
                wait(number - 1)
            old, made = _commit(scratch, remote, change, message, keep)
            overtaken = "" if old == made else _swap(scratch, remote, old, made)
            if not overtaken:
                return Pushed(made, number)
    raise MachineError(
        f"{remote} was not written in {attempts} tries: {overtaken}", "run it again later"
    )


def _wait(number: int) -> None:
    """A random time, longer from try to try, so that writers do not meet again."""
    time.sleep(random.uniform(0.05, min(8.0, 0.25 * 2**number)))


def _commit(
    scratch: Scratch,
    remote: Remote,
    change: Callable[[Path], None],
    message: str,
    keep: int | None,
) -> tuple[str | None, str]:
    """(the branch's commit, the one to replace it by); the same twice where nothing changed."""
    with tempfile.TemporaryDirectory(prefix="canary-branch-") as name:
        folder = Path(name)
        old = _pull(scratch, remote, folder)
        change(folder)
        if keep is not None and is_history(folder):
            prune(folder, keep)
        if not any(folder.rglob("*.json")):
            raise InputError(f"there is nothing to write to {remote}")
        tree = _tree(scratch, folder)
    if old is not None and _same(scratch, old, tree):
        return old, old
    return old, scratch.git("commit-tree", tree, "-m", message).text


def _same(scratch: Scratch, old: str, tree: str) -> bool:
    """Whether the branch is one parentless commit of this tree already."""
    head = scratch.git("cat-file", "commit", old).text.partition("\n\n")[0].splitlines()
    return head[0] == f"tree {tree}" and not any(line.startswith("parent ") for line in head)


def _tree(scratch: Scratch, folder: Path) -> str:
    """A tree of the folder's files, by an index of its own."""
    names = files_of(folder)
    listed = "".join(f"{folder / name}\n" for name in names).encode()
    shas = scratch.git("hash-object", "-w", "--no-filters", "--stdin-paths", given=listed).text
    lines = "".join(
        f"100644 {sha}\t{name}\n" for sha, name in zip(shas.split(), names, strict=True)
    )
    index = scratch.folder / "canary-index"
    index.unlink(missing_ok=True)
    extra = {"GIT_INDEX_FILE": str(index)}
    scratch.git("update-index", "--index-info", given=lines.encode(), extra=extra)
    return scratch.git("write-tree", extra=extra).text


def _pull(scratch: Scratch, remote: Remote, folder: Path, inhabited: bool = False) -> str | None:
    tip = _fetch(scratch, remote)
    if tip is None:
        if inhabited:
            _require_others(scratch, remote)
        return None
    try:
        _lay_out(scratch, tip, folder)
    except RecordError as error:
        if (folder / VERSION).exists():
            shutil.rmtree(folder / VERSION)
        raise RecordError(
            f"{remote} is not a baseline history: {error.message}",
            "it is left as it is; repair it, or delete it to begin anew",
        ) from error
    return tip


def _fetch(scratch: Scratch, remote: Remote) -> str | None:
    """The newest commit of the branch, with its files, in the scratch repository."""
    wanted = f"+{remote.ref}:{TIP}"
    command = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head")
    for last in (False, True):
        try:
            scratch.git(*command, remote.url, wanted)
        except GitFailed as failure:
            if MISSING.search(failure.said):
                return None
            if last or not passing(failure):
                raise _explained(failure, remote, writing=False) from failure
        else:
            break
    return scratch.git("rev-parse", "--verify", f"{TIP}^{{commit}}").text


def _require_others(scratch: Scratch, remote: Remote) -> None:
    """MachineError where a repository does not list the branches that it must have: to git, an
    empty page is a repository without any."""
    try:
        listed = scratch.git("ls-remote", "--heads", remote.url).text
    except GitFailed as failure:
        raise _explained(failure, remote, writing=False) from failure
    names = {line.partition("\t")[2] for line in listed.splitlines()}
    if not names:
        raise Unreadable(
            f"{shown(remote.url)} answers like an empty repository",
            "something else than git's server answers there; run the job again",
        )
    if remote.ref in names:
        raise Unreadable(f"{remote} was not found and then listed", "run the job again")


def _lay_out(scratch: Scratch, tip: str, folder: Path) -> None:
    """Writes the commit's files below a folder, after a look at what they are."""
    found = parse_listing(scratch.git("ls-tree", "-r", "-l", "-z", tip).out)
    check_listing(found)
    asked = "".join(f"{one.sha}\n" for one in found).encode()
    content = scratch.git("cat-file", "--batch", given=asked).out
    place = 0
    for one in found:
        begins = content.index(b"\n", place) + 1
        body = content[begins : begins + one.size]
        place = begins + one.size + 1
        check_content(one.path, body)
        path = folder / one.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        except OSError as error:
            raise MachineError(f"cannot write {path}: {error.strerror}") from error


def _swap(scratch: Scratch, remote: Remote, old: str | None, made: str) -> str:
    """Replaces the branch where it still is `old`; says why where another try is needed.

    Raises:
        MachineError: it cannot be written.
    """
    lease = f"--force-with-lease={remote.ref}:{old or ''}"
    try:
        scratch.git("push", "--porcelain", "--no-verify", lease, remote.url, f"{made}:{remote.ref}")
    except GitFailed as failure:
        if PROTECTED.search(failure.said):
            raise _protected(remote, failure) from failure
        # After a broken connection nobody knows; the next try sees whether it went through.
        if OVERTAKEN.search(failure.said):
            return "others were faster"
        if passing(failure):
            return telling_line(failure.said)
        raise _explained(failure, remote, writing=True) from failure
    return ""


def _explained(failure: GitFailed, remote: Remote, *, writing: bool) -> MachineError:
    return explained(failure, remote.url, writing=writing, token=bool(remote.token))


def _protected(remote: Remote, failure: GitFailed) -> CanaryError:
    reasons = [line for line in failure.said.splitlines() if PROTECTED.search(line)]
    return Refused(
        f"{remote} is protected: {telling_line(reasons[0])}",
        f"let this workflow replace {remote.branch}: take it out of branch protection and rulesets",
    )
