"""The commits from which a change descends, and what lies between two commits, from git."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from canary.baseline.branch import Remote
from canary.baseline.git import GitFailed, Scratch, explained, scratch_repository, shown
from canary.errors import MachineError, UsageError
from canary.machine.git import Unread, read_git

TIMEOUT_S = 300.0
DIGITS = 12
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@~^-]*")
BASE, HEAD = "refs/canary/base", "refs/canary/head"
FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0")
UNKNOWN = re.compile(r"not our ref|unadvertised object|couldn't find remote ref", re.IGNORECASE)


@dataclass(frozen=True)
class Ancestry:
    """A merge base and its ancestors, which include itself."""

    distances: Mapping[str, int]
    """Place in the list from the merge base backwards, children first, by 12 hex digits."""

    def __len__(self) -> int:
        return len(self.distances)

    def distance(self, commit: str) -> int | None:
        """Return a commit's distance, given 12 or more hex digits; None if it is no ancestor."""
        return self.distances.get(commit[:DIGITS])


def ancestry_of(remote: Remote, base: str, head: str) -> Ancestry:
    """Return the merge base of two commits, each a full sha or a branch, and its ancestors.

    Raises:
        UsageError: a name is invalid.
        MachineError: the commits cannot be fetched, or have no common ancestor.
    """
    for name in (base, head):
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a commit or branch")
    with scratch_repository(remote.url, remote.token) as scratch:
        _fetch(scratch, remote.url, {BASE: base, HEAD: head})
        try:
            merge_base = scratch.git("merge-base", BASE, HEAD).text.split()[0]
        except GitFailed as failure:
            raise MachineError(
                f"{base[:12]} and {head[:12]} have no common ancestor",
                "rebase onto the base branch; in a shallow checkout, fetch all commits first: "
                "`fetch-depth: 0`",
            ) from failure
        listing = scratch.git("rev-list", "--topo-order", merge_base).text
    return Ancestry({sha[:DIGITS]: place for place, sha in enumerate(listing.split())})


def _fetch(scratch: Scratch, url: str, wanted: Mapping[str, str]) -> None:
    """Fetch branches or shas as the given refs."""
    specs = [f"+{name}:{place}" for place, name in wanted.items()]
    try:
        scratch.git(*FETCH, url, *specs, timeout_s=TIMEOUT_S)
    except GitFailed as failure:
        gone = [name for name in wanted.values() if name in failure.said]
        if not (gone and UNKNOWN.search(failure.said)):
            raise explained(failure, url, writing=False) from failure
        raise MachineError(
            f"{shown(url)} has no commit {gone[0]}",
            "push it; if it was replaced by a force push, rebase",
        ) from failure


MOST_CHARACTERS = 2_000_000
SHA = re.compile(r"[0-9a-f]{7,64}")
DIFF = (
    *("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--submodule=short", "--ignore-submodules=dirty"),
    # A user's configuration must not change what is read.
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--find-renames"),
    *("--inter-hunk-context=0", "--ignore-cr-at-eol"),
)
CODE = "*.py"


def diff_between(folder: Path, base: str | None, head: str | None, dirty: bool = False) -> str:
    """Return `git diff --unified=0` from one commit to another: first code, then other files. The
    diff ends at the checkout's files if the current side was dirty and its commit is still checked
    out.

    It is empty without a repository or one of the commits. No program that the repository's
    configuration names runs (see `canary.machine.git`).
    """
    if not _is_commit(base) or not _is_commit(head) or (base == head and not dirty):
        return ""
    try:
        files = dirty and read_git(folder, "rev-parse", "HEAD").strip() == head
        range_ = [base] if files else [base, head]
        parts = (
            read_git(folder, *DIFF, *range_, "--", f":(top{kind}){CODE}", files=files)
            for kind in ("", ",exclude")
        )
        return "".join(part[:MOST_CHARACTERS] for part in parts)
    except Unread:
        return ""


def _is_commit(sha: str | None) -> TypeGuard[str]:
    """Return whether a record's text is a sha, and so cannot be taken for an option of git."""
    return isinstance(sha, str) and SHA.fullmatch(sha) is not None


def commits_between(folder: Path, base: str | None, head: str | None) -> int | None:
    """Return how many commits `head` has and `base` lacks; None without a repository or one of the
    commits, or if `head` does not descend from `base`."""
    if not _is_commit(base) or not _is_commit(head):
        return None
    try:
        if read_git(folder, "merge-base", base, head).strip() != base:
            return None
        counted = read_git(folder, "rev-list", "--count", f"{base}..{head}", "--").strip()
    except Unread:
        return None
    return int(counted) if counted.isdigit() else None
