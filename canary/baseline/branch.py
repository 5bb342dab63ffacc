"""The baseline branch: a history in a git repository, always one commit without a parent.

It is read and written from a scratch repository, never in the user's checkout. A write replaces the
branch only if it is unchanged since it was read (compare-and-swap); otherwise it is tried again.
A branch that cannot be read is an error, never an empty history. Files allowed on it are
`v2/<canary>/<machine key>/<entry>.json`, and noise models, which have a fixed name there.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from canary.baseline.entry import LARGEST, NAME, parse_entry
from canary.baseline.git import (
    CREDENTIALS,
    GitFailed,
    Scratch,
    explained,
    passing,
    scratch_repository,
    shown,
    telling_line,
)
from canary.baseline.history import NOISE_FILE, VERSION, is_history, prune
from canary.config.token import Token
from canary.errors import InputError, MachineError, RecordError, UsageError, writing
from canary.record import jsonio

PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
DEPTH = 4
REGULAR = "100644"
LARGEST_ALL = 256 << 20
MOST_FILES = 20_000


@dataclass(frozen=True)
class Found:
    """One object on the branch, as git lists it."""

    mode: str
    kind: str
    sha: str
    size: int
    path: str


def parse_listing(listing: bytes) -> list[Found]:
    """Parse the output of `git ls-tree -r -l -z`."""
    found = []
    for line in listing.split(b"\0"):
        if line:
            facts, _, path = line.decode("utf-8", errors="replace").partition("\t")
            mode, kind, sha, size = facts.split()
            found.append(Found(mode, kind, sha, int(size) if size.isdigit() else 0, path))
    return found


def check_listing(found: Iterable[Found]) -> None:
    """Refuse a listing that is not a history.

    Raises:
        RecordError: names the first file that does not belong there.
    """
    count = total = 0
    for one in found:
        count, total = count + 1, total + one.size
        if one.mode != REGULAR or one.kind != "blob":
            raise RecordError(f"{one.path!r} has mode {one.mode}, so it is not a plain file")
        _check_path(one.path)
        if one.size > LARGEST:
            raise RecordError(f"{one.path} has {one.size:,} bytes; the limit is {LARGEST:,}")
    if count > MOST_FILES or total > LARGEST_ALL:
        raise RecordError(f"it is too large: {count:,} files of {total:,} bytes")
    if not count:
        raise RecordError(f"it has no {VERSION}/")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(parts) != DEPTH or parts[0] != VERSION or not path.endswith(".json"):
        raise RecordError(f"{path!r} does not belong in a baseline history")
    if not all(PART.fullmatch(part) for part in parts):
        raise RecordError(f"{path!r} has a name that a baseline history cannot have")
    if parts[-1] != NOISE_FILE and not NAME.fullmatch(parts[-1]):
        raise RecordError(f"{path!r} is not named like an entry")


def check_content(path: str, content: bytes) -> None:
    """Refuse a file that is neither a noise model nor an entry, as its name says.

    Raises:
        RecordError: names the file.
    """
    if path.endswith(f"/{NOISE_FILE}"):
        try:
            jsonio.loads(content)
        except ValueError as error:
            raise RecordError(f"{path} cannot be read: {error}") from error
        return
    parse_entry(content, path)


BRANCH = "canary-baselines"
KEEP = 50
"""Runs kept per canary and machine."""
ATTEMPTS = 12
TIP = "refs/canary/tip"
LIST = ("ls-tree", "-r", "-l", "-z")
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
                f"{shown(self.url)!r} is not the address of a repository", "name one with --remote"
            )
        if self.url.startswith("http") and CREDENTIALS.search(self.url):
            raise UsageError(
                f"the address of {shown(self.url)} holds credentials",
                "remove them from the address and set CANARY_TOKEN",
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
    """Write the branch's history into an empty folder, and return the branch's commit; None if the
    repository has no such branch.

    `inhabited`: the repository is known to have commits, so an answer without branches is wrong.

    Raises:
        MachineError: the repository cannot be read.
        RecordError: the branch does not hold a history.
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
    """Let `change` edit the branch's history in a folder, prune it, and replace the branch. Every
    try calls `change` again. `keep`: runs that stay per canary and machine.

    `wait` waits after a try that another writer overtook; it gets the number of the try.

    Raises:
        MachineError: the repository cannot be read or written, or others were faster every time.
        RecordError: the branch does not hold a history; it stays unchanged.
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
    """Sleep for a random time, longer after each try, so that writers do not collide again."""
    time.sleep(random.uniform(0.05, min(8.0, 0.25 * 2**number)))


def _commit(
    scratch: Scratch,
    remote: Remote,
    change: Callable[[Path], None],
    message: str,
    keep: int | None,
) -> tuple[str | None, str]:
    """Return (the branch's commit, its replacement); both are the same if nothing changed."""
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
    """Return whether the branch is already a parentless commit of this tree."""
    head = scratch.git("cat-file", "commit", old).text.partition("\n\n")[0].splitlines()
    return head[0] == f"tree {tree}" and not any(line.startswith("parent ") for line in head)


def _tree(scratch: Scratch, folder: Path) -> str:
    """Return the tree of the folder's files. Raises RecordError if one does not belong there."""
    scratch.git("add", "--all", "--force", extra={"GIT_WORK_TREE": str(folder)})
    tree = scratch.git("write-tree").text
    check_listing(parse_listing(scratch.git(*LIST, tree).out))
    return tree


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
            "it was not changed; repair it, or delete it to start again",
        ) from error
    return tip


def _fetch(scratch: Scratch, remote: Remote) -> str | None:
    """Fetch the branch's newest commit with its files; return its sha, None without a branch."""
    wanted = f"+{remote.ref}:{TIP}"
    command = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head")
    for last in (False, True):
        try:
            scratch.git(*command, remote.url, wanted)
        except GitFailed as failure:
            if MISSING.search(failure.said):
                return None
            if last or not passing(failure):
                raise explained(failure, remote.url, writing=False) from failure
        else:
            break
    return scratch.git("rev-parse", "--verify", f"{TIP}^{{commit}}").text


def _require_others(scratch: Scratch, remote: Remote) -> None:
    """Raise MachineError if a repository does not list the branches that it must have: git takes an
    empty page for a repository without branches."""
    try:
        listed = scratch.git("ls-remote", "--heads", remote.url).text
    except GitFailed as failure:
        raise explained(failure, remote.url, writing=False) from failure
    names = {line.partition("\t")[2] for line in listed.splitlines()}
    if not names:
        raise MachineError(
            f"{shown(remote.url)} answers like an empty repository",
            "the server there is not a git server; run the job again",
        )
    if remote.ref in names:
        raise MachineError(f"{remote} was not found, but then listed", "run the job again")


def _lay_out(scratch: Scratch, tip: str, folder: Path) -> None:
    """Check the commit's files and write them below a folder."""
    found = parse_listing(scratch.git(*LIST, tip).out)
    check_listing(found)
    asked = "".join(f"{one.sha}\n" for one in found).encode()
    content = scratch.git("cat-file", "--batch", given=asked).out
    place = 0
    for one in found:
        start = content.index(b"\n", place) + 1
        body = content[start : start + one.size]
        place = start + one.size + 1
        check_content(one.path, body)
        path = folder / one.path
        with writing(path, "choose another place"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)


def _swap(scratch: Scratch, remote: Remote, old: str | None, made: str) -> str:
    """Replace the branch if it still is `old`; return why another try is needed, or an empty text.

    Raises:
        MachineError: it cannot be written.
    """
    lease = f"--force-with-lease={remote.ref}:{old or ''}"
    try:
        scratch.git("push", "--porcelain", "--no-verify", lease, remote.url, f"{made}:{remote.ref}")
    except GitFailed as failure:
        if PROTECTED.search(failure.said):
            reasons = [line for line in failure.said.splitlines() if PROTECTED.search(line)]
            name = remote.branch
            raise MachineError(
                f"{remote} is protected: {telling_line(reasons[0])}",
                f"let this workflow replace {name}: exempt it from branch protection and rulesets",
            ) from failure
        # After a broken connection the next try shows whether the push succeeded.
        if OVERTAKEN.search(failure.said):
            return "others were faster"
        if passing(failure):
            return telling_line(failure.said)
        raise explained(failure, remote.url, writing=True) from failure
    return ""
