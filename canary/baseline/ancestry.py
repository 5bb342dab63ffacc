"""The commits from which a change descends, and their distances. It needs no files, only commits,
which it fetches into a scratch repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from canary.baseline.branch import Remote
from canary.baseline.git import GitFailed, Scratch, explained, scratch_repository, shown
from canary.errors import MachineError, UsageError

TIMEOUT_S = 300.0
DIGITS = 12
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@~^-]*")
BASE, HEAD = "refs/canary/base", "refs/canary/head"
FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0")
UNKNOWN = re.compile(r"not our ref|unadvertised object|couldn't find remote ref", re.IGNORECASE)


@dataclass(frozen=True)
class Ancestry:
    """A merge base and its ancestors, which include itself."""

    merge_base: str
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
        return _answer(scratch, f"{base[:12]} and {head[:12]}")


def _answer(scratch: Scratch, words: str) -> Ancestry:
    """Return the ancestry from a scratch repository that holds all commits of both."""
    try:
        merge_base = scratch.git("merge-base", BASE, HEAD).text.split()[0]
    except GitFailed as failure:
        raise MachineError(
            f"{words} have no common ancestor",
            "rebase onto the base branch; in a shallow checkout, fetch all commits first: "
            "`fetch-depth: 0`",
        ) from failure
    listing = scratch.git("rev-list", "--topo-order", merge_base).text
    near = {sha[:DIGITS]: place for place, sha in enumerate(listing.split())}
    return Ancestry(merge_base, near)


def _fetch(scratch: Scratch, url: str, wanted: Mapping[str, str]) -> None:
    """Fetch branches or shas as the given refs."""
    specs = [f"+{name}:{place}" for place, name in wanted.items()]
    try:
        scratch.git(*FETCH, url, *specs, timeout_s=TIMEOUT_S)
    except GitFailed as failure:
        gone = [name for name in wanted.values() if name in failure.said]
        if not (gone and UNKNOWN.search(failure.said)):
            raise explained(failure, url, writing=False, token=bool(scratch.token)) from failure
        raise MachineError(
            f"{shown(url)} has no commit {gone[0]}",
            "push it; if it was replaced by a force push, rebase",
        ) from failure
