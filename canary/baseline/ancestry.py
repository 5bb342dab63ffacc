"""The commits from which a change descends, and their distances. It needs no files, only commits.

A remote's commits are fetched into a scratch repository. A user's checkout is only read: if it is
shallow, the missing commits are fetched into the scratch repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.baseline.branch import Remote
from canary.baseline.git import (
    CREDENTIALS,
    GitFailed,
    Scratch,
    explained,
    scratch_repository,
    shown,
)
from canary.config.token import Token
from canary.errors import CanaryError, MachineError, UsageError

TIMEOUT_S = 300.0
DIGITS = 12
SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
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


def ancestry_of(
    source: Remote | Path,
    base: str,
    head: str,
    *,
    token: Token | None = None,
    environ: Mapping[str, str] | None = None,
) -> Ancestry:
    """Return the merge base of two commits, each a full sha or a branch, and its ancestors.

    `source`: a remote or a user's checkout. `token`: for the origin of a shallow checkout.

    Raises:
        UsageError: a name is invalid, or `source` is no repository.
        MachineError: the commits cannot be fetched, or have no common ancestor.
    """
    for name in (base, head):
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a commit or branch")
    if isinstance(source, Path):
        return _of_checkout(source, base, head, token, environ)
    with scratch_repository(source.url, source.token, environ) as scratch:
        _fetch(scratch, source.url, {BASE: base, HEAD: head})
        return _answer(scratch, BASE, HEAD, f"{base[:12]} and {head[:12]}")


def _answer(scratch: Scratch, base: str, head: str, words: str) -> Ancestry:
    """Return the ancestry from a scratch repository that holds all commits of both."""
    try:
        merge_base = scratch.git("merge-base", base, head).text.split()[0]
    except GitFailed as failure:
        raise MachineError(
            f"{words} have no common ancestor",
            "rebase onto the base branch; in a shallow checkout, fetch all commits first: "
            "`fetch-depth: 0`",
        ) from failure
    return _listed(merge_base, scratch.git("rev-list", "--topo-order", merge_base).text)


def _listed(merge_base: str, listing: str) -> Ancestry:
    near = {sha[:DIGITS]: place for place, sha in enumerate(listing.split())}
    return Ancestry(merge_base, near)


def _fetch(scratch: Scratch, url: str, wanted: Mapping[str, str], *options: str) -> None:
    """Fetch refs or shas as the given refs. If the server refuses to send a commit by its sha,
    fetch all branches instead."""
    specs = [f"+{name}:{place}" for place, name in wanted.items()]
    try:
        scratch.git(*FETCH, *options, url, *specs, timeout_s=TIMEOUT_S)
    except GitFailed as failure:
        if not UNKNOWN.search(failure.said):
            raise explained(failure, url, writing=False, token=bool(scratch.token)) from failure
        _through_branches(scratch, url, wanted, *options)


def _through_branches(scratch: Scratch, url: str, wanted: Mapping[str, str], *options: str) -> None:
    try:
        branches = "+refs/heads/*:refs/canary/heads/*"
        scratch.git(*FETCH, *options, url, branches, timeout_s=TIMEOUT_S)
    except GitFailed as failure:
        raise explained(failure, url, writing=False, token=bool(scratch.token)) from failure
    for place, name in wanted.items():
        revision = name if SHA.fullmatch(name) else f"refs/canary/heads/{name}"
        try:
            sha = scratch.git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").text
            scratch.git("update-ref", place, sha)
        except GitFailed as failure:
            raise MachineError(
                f"{shown(url)} has no commit {name}",
                "push it; if it was replaced by a force push, rebase",
            ) from failure


def _of_checkout(
    checkout: Path,
    base: str,
    head: str,
    token: Token | None,
    environ: Mapping[str, str] | None,
) -> Ancestry:
    with scratch_repository(environ=environ) as scratch:
        found = {name: _resolved(scratch, checkout, name) for name in (base, head)}
        shallow = _shallow(scratch, checkout)
        if all(found.values()) and not shallow:
            return _read(scratch, checkout, str(found[base]), str(found[head]))
        url = _origin(scratch, checkout)
    with scratch_repository(url, token, environ) as scratch:
        _take_over(scratch, checkout, [sha for sha in found.values() if sha], shallow)
        wanted = {
            place: name for place, name in ((BASE, base), (HEAD, head)) if not found[name]
        } or {"refs/canary/tip": "HEAD"}
        try:
            _fetch(scratch, url, wanted, *(["--unshallow"] if shallow else []))
        except CanaryError as error:
            raise MachineError(
                f"{checkout} lacks commits, and they cannot be fetched: {error.message}",
                "check out with `fetch-depth: 0`",
            ) from error
        one, other = found[base] or BASE, found[head] or HEAD
        return _answer(scratch, one, other, f"{base[:12]} and {head[:12]}")


def _resolved(scratch: Scratch, checkout: Path, name: str) -> str | None:
    """Return the commit that a name means in a checkout; None if the checkout lacks it.

    Raises:
        UsageError: the folder is in no repository.
    """
    for ref in (name, f"refs/remotes/origin/{name}"):
        command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        try:
            return scratch.reading(checkout, *command).text
        except GitFailed as failure:
            if "fatal:" in failure.said:
                raise UsageError(
                    f"{checkout} cannot be read as a repository: {failure}"
                ) from failure
    return None


def _shallow(scratch: Scratch, checkout: Path) -> str:
    """Return the commits where a shallow checkout ends; empty if it has all commits."""
    if scratch.reading(checkout, "rev-parse", "--is-shallow-repository").text != "true":
        return ""
    path = scratch.reading(checkout, "rev-parse", "--git-path", "shallow").text
    try:
        return (checkout / path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise MachineError(f"{checkout / path} cannot be read: {error}") from error


def _read(scratch: Scratch, checkout: Path, base: str, head: str) -> Ancestry:
    try:
        merge_base = scratch.reading(checkout, "merge-base", base, head).text.split()[0]
    except GitFailed as failure:
        raise MachineError(
            f"{base[:12]} and {head[:12]} have no common ancestor in {checkout}",
            "rebase onto the base branch",
        ) from failure
    listing = scratch.reading(checkout, "rev-list", "--topo-order", merge_base).text
    return _listed(merge_base, listing)


def _origin(scratch: Scratch, checkout: Path) -> str:
    try:
        url = scratch.reading(checkout, "remote", "get-url", "origin").text
    except GitFailed as failure:
        raise MachineError(
            f"{checkout} lacks commits and has no remote `origin` to fetch them from",
            "check out with `fetch-depth: 0`",
        ) from failure
    return CREDENTIALS.sub("", url) if url.startswith("http") else url


def _take_over(scratch: Scratch, checkout: Path, tips: list[str], shallow: str) -> None:
    """Copy a checkout's commits, without files, and its shallow boundary."""
    asked = "".join(f"{sha}\n" for sha in tips).encode()
    if shallow:
        (scratch.folder / "shallow").write_text(shallow, encoding="ascii")
    if tips:
        command = ("pack-objects", "--quiet", "--revs", "--stdout", "--filter=tree:0")
        pack = scratch.reading(checkout, *command, given=asked).out
        scratch.git("index-pack", "--stdin", "--promisor", given=pack)
    for number, sha in enumerate(tips):
        scratch.git("update-ref", f"refs/canary/taken/{number}", sha)
