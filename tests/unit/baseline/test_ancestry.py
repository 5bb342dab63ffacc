"""Ancestors of a merge base, from a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from canary.baseline import ancestry
from canary.baseline.ancestry import Ancestry, ancestry_of
from canary.baseline.branch import Remote
from canary.baseline.git import Scratch
from canary.config.token import Token
from canary.errors import MachineError, UsageError
from tests.contract.git_server import GitServer, git, serving

TOKEN = "ghs_" + 3 * "0123456789ab"
ME = ("-c", "user.name=u", "-c", "user.email=u@e", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class Repository:
    """main: m0 .. m5; pr: branched off at m3, p0 .. p2; alone: without a common ancestor."""

    checkout: Path
    main: list[str]
    pr: list[str]
    alone: str


def commit(checkout: Path, text: str) -> str:
    (checkout / "train.py").write_text(text)
    git(checkout, "add", ".")
    git(checkout, *ME, "commit", "-qm", text)
    return git(checkout, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GitServer, Repository]]:
    """The repository on a server that asks for a token."""
    place = tmp_path_factory.mktemp("origin")
    with serving(place / "server") as server:
        server.make()
        checkout = place / "checkout"
        checkout.mkdir()
        git(checkout, "init", "-q", "-b", "main")
        git(checkout, "remote", "add", "origin", server.url())
        main = [commit(checkout, f"m{number}") for number in range(6)]
        git(checkout, "checkout", "-q", "-b", "pr", main[3])
        pr = [commit(checkout, f"p{number}") for number in range(3)]
        git(checkout, "checkout", "-q", "--orphan", "alone")
        alone = commit(checkout, "alone")
        git(checkout, "push", "-q", "origin", "main", "pr", "alone")
        server.token = TOKEN
        yield server, Repository(checkout, main, pr, alone)


@pytest.fixture
def remote(origin: tuple[GitServer, Repository]) -> Remote:
    return Remote(origin[0].url(), token=Token(TOKEN))


@pytest.fixture
def repository(origin: tuple[GitServer, Repository]) -> Repository:
    return origin[1]


def told(found: Ancestry, commits: list[str]) -> list[int | None]:
    return [found.distance(sha) for sha in commits]


def right(found: Ancestry, repository: Repository) -> None:
    """The answer for main and pr."""
    assert told(found, repository.main) == [3, 2, 1, 0, None, None]
    assert told(found, repository.pr) == [None, None, None]
    assert len(found) == 4


def test_a_server_tells_by_commit_and_by_branch(remote: Remote, repository: Repository) -> None:
    right(ancestry_of(remote, repository.main[5], repository.pr[2]), repository)
    right(ancestry_of(remote, "main", "pr"), repository)
    right(ancestry_of(remote, "refs/heads/main", repository.pr[2]), repository)


def test_a_commit_descends_from_itself(remote: Remote, repository: Repository) -> None:
    found = ancestry_of(remote, repository.main[5], repository.main[5])
    assert told(found, repository.main) == [5, 4, 3, 2, 1, 0]
    assert found.distance(repository.main[5][:12]) == 0


def test_parents_come_after_all_their_children_whatever_the_clocks_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By date alone, the first commit would pass for newer than the second."""
    checkout = tmp_path / "merging"
    checkout.mkdir()
    git(checkout, "init", "-q", "-b", "main")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2090-01-01T00:00:00Z")
    first = commit(checkout, "first")
    git(checkout, "checkout", "-q", "-b", "side")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
    (checkout / "other").write_text("x")
    side = commit(checkout, "first")
    git(checkout, "checkout", "-q", "main")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2000-01-01T00:00:00Z")
    second = commit(checkout, "second")
    git(checkout, *ME, "merge", "-q", "--no-ff", "-m", "merge", "side")
    merge = git(checkout, "rev-parse", "HEAD")
    found = ancestry_of(Remote(str(checkout)), "main", "main")
    assert told(found, [merge, first]) == [0, 3]
    assert {found.distance(side), found.distance(second)} == {1, 2}


@pytest.mark.parametrize("key", ["uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"])
def test_a_server_that_refuses_filters_or_commits_by_id_tells_too(
    origin: tuple[GitServer, Repository], remote: Remote, repository: Repository, key: str
) -> None:
    bare = origin[0].root / "repo.git"
    git(bare, "config", key, "false")
    try:
        right(ancestry_of(remote, repository.main[5], repository.pr[1]), repository)
    finally:
        git(bare, "config", key, "true")


def test_files_are_not_fetched(
    remote: Remote, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: set[str] = set()
    fetch = ancestry._fetch

    def looking(scratch: Scratch, url: str, wanted: Mapping[str, str]) -> None:
        fetch(scratch, url, wanted)
        command = ("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
        kinds.update(scratch.git(*command).text.split())

    monkeypatch.setattr(ancestry, "_fetch", looking)
    right(ancestry_of(remote, repository.main[5], repository.pr[2]), repository)
    assert kinds == {"commit"}


def test_without_a_common_ancestor_it_says_what_to_do(
    remote: Remote, repository: Repository
) -> None:
    with pytest.raises(MachineError, match=r"no common ancestor.*rebase"):
        ancestry_of(remote, repository.alone, repository.pr[2])


def test_a_commit_that_is_not_there_is_named(remote: Remote, repository: Repository) -> None:
    for name in ("a" * 40, "gone"):
        with pytest.raises(MachineError, match=f"has no commit {name}"):
            ancestry_of(remote, repository.main[5], name)


@pytest.mark.parametrize("name", ["", "--upload-pack=x", "a b", "a:b", "+main", "x\n"])
def test_a_name_that_is_none_is_refused(remote: Remote, name: str) -> None:
    with pytest.raises(UsageError, match="not a commit or branch"):
        ancestry_of(remote, "main", name)


def test_a_server_that_lets_nobody_in_or_is_not_there_is_told(remote: Remote) -> None:
    with pytest.raises(MachineError, match="CANARY_TOKEN"):
        ancestry_of(Remote(remote.url, token=Token("wrong")), "main", "pr")
    with pytest.raises(MachineError, match="cannot read"):
        ancestry_of(Remote("http://127.0.0.1:9/r"), "main", "pr")
