"""What the baseline branch refuses: to be read where it is broken, and to say a secret."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canary.baseline.branch import Remote, pull, push
from canary.baseline.git import TIMEOUT_S, GitFailed, explained, scratch_repository
from canary.config.token import Token
from canary.errors import CanaryError, InputError, MachineError, RecordError, UsageError
from tests.contract.git_server import GitServer, bare_repository, git, serving
from tests.unit.branching import REF, adding, sha_of, write_branch

TOKEN = "ghs_" + 3 * "0123456789ab"
ENTRY = "v2/sft_smoke/cpu_x1_float32/20260101T000001_run-00001.json"
WHOLE = '{"entry_version": 1, "accepted": null, "record": {}}'


@pytest.fixture
def local(tmp_path: Path) -> tuple[Remote, Path]:
    bare = bare_repository(tmp_path / "plain.git")
    return Remote(f"file://{bare}"), bare


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with serving(tmp_path / "server", TOKEN) as running:
        running.make()
        yield running


BROKEN: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "code beside a history": ({ENTRY: WHOLE, "a/b/c/d.json": "{}"}, {}, "does not belong"),
    "an earlier version": ({ENTRY.replace("v2", "v1"): WHOLE}, {}, "does not belong"),
    "another name": ({"v2/a/b/notes.json": WHOLE}, {}, "not named like an entry"),
    "cut off": ({ENTRY: WHOLE[:20]}, {}, f"{ENTRY} cannot be read"),
    "no entry": ({ENTRY: "{}"}, {}, "is not an entry"),
    "a later entry": ({ENTRY: '{"entry_version": 2}'}, {}, "is not an entry"),
    "a made-up context": (
        {ENTRY: '{"entry_version": 1, "context": {"commit": "x"}}'},
        {},
        r"context\.commit",
    ),
    "noise cut off": ({ENTRY: WHOLE, "v2/a/b/noise.json": "{"}, {}, "noise.json cannot be read"),
    "a link": ({ENTRY: "/etc/passwd"}, {ENTRY: "120000"}, "mode 120000"),
    "a program": ({ENTRY: WHOLE}, {ENTRY: "100755"}, "mode 100755"),
    "a submodule": ({"v2/a/b/c.json": ""}, {"v2/a/b/c.json": "160000"}, "mode 160000"),
    "a way out": ({"v2/../b/c.json": WHOLE}, {}, "a name that"),
    "a hidden folder": ({"v2/.git/b/c.json": WHOLE}, {}, "a name that"),
    "too large": ({ENTRY: " " * (9 << 20)}, {}, "the limit is 8,388,608"),
    "nothing": ({}, {}, "it has no v2/"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_branch_is_an_error_and_stays_as_it_is(
    local: tuple[Remote, Path], tmp_path: Path, case: str
) -> None:
    remote, bare = local
    files, modes, says = BROKEN[case]
    before = write_branch(bare, files, modes=modes)
    into = tmp_path / "into"
    with pytest.raises(RecordError, match=says) as caught:
        pull(remote, into)
    assert str(remote) in str(caught.value)
    assert "delete it to start again" in str(caught.value)
    assert caught.value.exit_code == 4
    assert not [path for path in into.rglob("*") if path.is_file()]
    with pytest.raises(RecordError, match=says):
        push(remote, adding(1), message="m")
    assert git(bare, "rev-parse", REF) == before


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_an_unreachable_remote_is_told_within_seconds(tmp_path: Path) -> None:
    remote = Remote(f"http://127.0.0.1:{closed_port()}/repo.git", token=Token(TOKEN))

    def again(number: int) -> None:
        raise AssertionError("it was tried again")

    began = time.monotonic()
    for act in (
        lambda: pull(remote, tmp_path / "into"),
        lambda: push(remote, adding(1), message="m", wait=again),
    ):
        with pytest.raises(
            MachineError, match=r"cannot (read|write) http://127\.0\.0\.1"
        ) as caught:
            act()
        assert caught.value.exit_code == 4
    assert time.monotonic() - began < TIMEOUT_S / 2, "on a busy machine too"


def test_a_remote_that_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/repo.git"
        began = time.monotonic()
        with scratch_repository(url) as scratch, pytest.raises(MachineError, match="in 1 s"):
            scratch.git("ls-remote", url, timeout_s=0.6)
        assert time.monotonic() - began < TIMEOUT_S / 2


def test_a_repository_that_is_not_there_is_no_missing_branch(
    server: GitServer, tmp_path: Path
) -> None:
    for url, token in ((server.url("gone"), Token(TOKEN)), (f"file://{tmp_path}/gone.git", None)):
        with pytest.raises(MachineError, match="cannot read"):
            pull(Remote(url, token=token), tmp_path / "into")


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (b"", "answers like an empty repository"),
        (b"<html>sign in</html>", "answers like an empty repository"),
        (b"<!DOCTYPE html>\n<html><body><p>" + b"Sign in. " * 20, "cannot read"),
    ],
)
def test_a_page_that_is_not_gits_is_no_missing_branch(
    server: GitServer, tmp_path: Path, page: bytes, says: str
) -> None:
    bare = server.root / "repo.git"
    git(bare, "update-ref", "refs/heads/main", write_branch(bare, {"a": "b"}))
    git(bare, "update-ref", "-d", REF)
    remote = Remote(server.url(), token=Token(TOKEN))
    assert pull(remote, tmp_path / "into", inhabited=True) is None, "a first run"
    server.pages += [page] * 9
    with pytest.raises(MachineError, match=says):
        pull(remote, tmp_path / "into", inhabited=True)


def test_a_branch_that_one_empty_page_hid_is_no_missing_branch(
    server: GitServer, tmp_path: Path
) -> None:
    remote = Remote(server.url(), token=Token(TOKEN))
    push(remote, adding(1), message="m")
    server.pages.append(b"")
    with pytest.raises(MachineError, match="was not found, but then listed"):
        pull(remote, tmp_path / "into", inhabited=True)


@pytest.mark.parametrize("token", [Token("ghs_wrong"), None])
def test_a_wrong_token_is_told_without_the_token(
    server: GitServer, tmp_path: Path, token: Token | None
) -> None:
    remote = Remote(server.url(), token=token)
    for act in (
        lambda: pull(remote, tmp_path / "into"),
        lambda: push(remote, adding(1), message="m"),
    ):
        with pytest.raises(MachineError, match=r"cannot (?:read|write)") as caught:
            act()
        assert "CANARY_TOKEN" in str(caught.value)
        assert "ghs_wrong" not in str(caught.value)


def test_a_token_that_may_only_read_names_the_permission(server: GitServer, tmp_path: Path) -> None:
    server.read_only = True
    remote = Remote(server.url(), token=Token(TOKEN))
    assert pull(remote, tmp_path / "into") is None
    with pytest.raises(MachineError, match=r"cannot write .*contents: write") as caught:
        push(remote, adding(1), message="m")
    assert caught.value.exit_code == 4
    assert sum("POST /repo.git/git-receive-pack" in line for line in server.requests) == 0


def test_a_protected_branch_is_named_with_its_remedy(local: tuple[Remote, Path]) -> None:
    remote, bare = local
    hook = bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'error: GH006: Protected branch update failed' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(
        MachineError, match=r"is protected: .*GH006.*branch protection and rulesets"
    ):
        push(remote, adding(1), message="m")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "remote: Permission to o/r.git denied to github-actions[bot].\n"
            "fatal: unable to access 'https://github.com/o/r/': "
            "The requested URL returned error: 403",
            "contents: write",
        ),
        (
            "remote: Invalid username or password.\n"
            "fatal: Authentication failed for 'https://github.com/o/r/'",
            "contents: write",
        ),
        ("git@github.com: Permission denied (publickey).\nfatal: x", "contents: write"),
        ("remote: Repository not found.\nfatal: repository 'u' not found", "private"),
    ],
)
def test_what_github_says_is_understood(said: str, hint: str) -> None:
    url = "https://github.com/o/r"
    found = explained(GitFailed("push", said, 128), url, writing=True)
    assert url in found.message
    assert hint in str(found.hint)


@pytest.mark.parametrize(
    "url",
    [
        f"https://x-access-token:{TOKEN}@github.com/o/r",
        f"https://{TOKEN}@github.com/o/r",
        f"https://user:p@{TOKEN}@github.com/o/r",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match="holds credentials") as caught:
        Remote(url)
    assert TOKEN not in str(caught.value)
    assert "https://github.com/o/r" in str(caught.value)


def test_a_token_does_not_travel_unencrypted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unencrypted"):
        pull(Remote("http://git.example/r", token=Token(TOKEN)), tmp_path / "into")


@pytest.mark.parametrize("url", ["", " ", "--upload-pack=x", "-c", "https://a\nb"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not the address"):
        Remote(url)


@pytest.mark.parametrize("name", ["", "-x", "a..b", "a/", "/a", "a b", "a.lock", "a/.b", "a~1"])
def test_a_branch_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid branch name"):
        Remote("https://github.com/o/r", name)


def test_addresses_cannot_run_programs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(CanaryError):
        pull(Remote(f"ext::touch% {mark}"), tmp_path / "into")
    assert not mark.exists()


def test_a_run_that_cannot_be_stored_leaves_the_branch(local: tuple[Remote, Path]) -> None:
    remote, bare = local
    before = push(remote, adding(1), message="m").sha

    def change(folder: Path) -> None:
        adding(2)(folder)
        raise InputError("a run that cannot become a baseline")

    with pytest.raises(InputError, match="cannot become"):
        push(remote, change, message="m")
    assert git(bare, "rev-parse", REF) == before
    assert sha_of(1)[:12] in git(bare, "ls-tree", "-r", "--name-only", REF)
