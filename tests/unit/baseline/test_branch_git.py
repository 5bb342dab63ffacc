"""Git as it is run for the branch: no secret among its arguments, nothing of the user's touched."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from canary.baseline.branch import Remote, push
from canary.baseline.git import GitFailed, authorization, scratch_repository
from canary.config.token import SHOWN, Token
from canary.errors import MachineError, UsageError
from tests.contract.git_server import bare_repository, git, serving
from tests.unit.branching import adding

TOKEN = "ghs_" + 3 * "0123456789ab"
BASIC = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """The surroundings with a `git` of ours first on the path."""
    folder.mkdir()
    file = folder / "git"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def real_git() -> str:
    return subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout[:-1]


def test_the_token_is_in_no_argument_and_reaches_the_server(tmp_path: Path) -> None:
    log = tmp_path / "arguments"
    environ = stand_in(tmp_path / "bin", f'printf "%s\\n" "$@" >> {log}\nexec {real_git()} "$@"')
    with serving(tmp_path / "server", TOKEN) as server:
        server.make()
        remote = Remote(server.url(), token=Token(TOKEN))
        push(remote, adding(1), message="m", environ=environ)
        server.token = "another"
        with pytest.raises(MachineError):
            push(remote, adding(1), message="m", environ=environ)
    written = log.read_text()
    assert "push\n" in written
    assert "fetch\n" in written
    assert TOKEN not in written
    assert BASIC not in written


def test_only_the_commands_that_talk_to_the_server_are_given_the_token(tmp_path: Path) -> None:
    """Every other command, and git's own look at its version and configuration, has none."""
    seen = tmp_path / "environments"
    seen.mkdir()
    environ = stand_in(tmp_path / "bin", f'env > "{seen}/$1-$$"\nexec {real_git()} "$@"')
    environ |= dict.fromkeys(("CANARY_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"), TOKEN)
    with serving(tmp_path / "server", TOKEN) as server:
        server.make()
        remote = Remote(server.url(), token=Token(TOKEN))
        for number in (1, 2):
            push(remote, adding(number), message="m", environ=environ)
    texts = {path.name: path.read_text() for path in seen.iterdir()}
    holding = {name for name, text in texts.items() if TOKEN in text or BASIC in text}
    assert {name.partition("-")[0] for name in holding} == {"fetch", "push"}
    assert {"version", "init", "write"} <= {name.partition("-")[0] for name in texts}
    assert not any(f"={TOKEN}" in text for text in texts.values()), "and as no variable of its own"


def test_what_git_says_is_scrubbed(tmp_path: Path) -> None:
    says = f"fatal: {TOKEN} {BASIC} https://user:{TOKEN}x@host/r?key={TOKEN}"
    environ = stand_in(
        tmp_path / "bin",
        f'case "$1" in fetch) echo "{says}" >&2; exit 128;; esac\nexec {real_git()} "$@"',
    )
    with scratch_repository("https://host/r", Token(TOKEN), environ) as scratch:
        with pytest.raises(GitFailed) as caught:
            scratch.git("fetch")
        assert TOKEN not in repr(scratch)
        assert BASIC not in repr(scratch)
    told = f"{caught.value!r} {caught.value} {caught.value.said} {vars(caught.value)}"
    assert TOKEN not in told
    assert BASIC not in told
    assert "https://host/r" in told


def test_a_token_shows_nowhere() -> None:
    token = Token(f" {TOKEN}\n")
    remote = Remote("https://github.com/o/r", token=token)
    for text in (str(token), repr(token), f"{token}", f"{token:>9}", "%s" % token, repr(remote)):  # noqa: UP031
        assert TOKEN not in text
    assert f"{token}" == SHOWN
    assert token.reveal() == TOKEN
    assert Token("")._value == ""
    assert not Token(" ")
    assert token == Token(TOKEN)
    assert not hasattr(token, "__dict__")
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(token)


@pytest.mark.parametrize("value", [TOKEN, "a/b+c=d e", "x" * 200])
def test_scrubbing_takes_every_form_of_a_token(value: str) -> None:
    from urllib.parse import quote, quote_plus

    token = Token(value)
    alone = base64.b64encode(value.encode()).decode()
    for form in (value, quote(value, safe=""), quote_plus(value), token.basic(), alone):
        assert token.scrub(f"a {form} b") == f"a {SHOWN} b"
    assert Token("").scrub("as it is") == "as it is"


def test_the_token_goes_to_its_own_server_alone() -> None:
    (header, sent), redirects = authorization("https://github.com/o/r.git", Token(TOKEN))
    assert header == "http.https://github.com/.extraheader"
    assert sent == f"AUTHORIZATION: basic {BASIC}"
    assert redirects == ("http.followRedirects", "false")
    for url in ("git@github.com:o/r.git", "ssh://git@github.com/o/r", "file:///r", "/r"):
        assert authorization(url, Token(TOKEN)) == []
    assert authorization("https://github.com/o/r", Token()) == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A user's repository with a staged change and hooks that would tell."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("1")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=u", "-c", "user.email=u@e", "commit", "-qm", "one")
    (folder / "train.py").write_text("2")
    git(folder, "add", ".")
    (folder / "train.py").write_text("3")
    for name in ("pre-push", "post-checkout", "reference-transaction", "post-index-change"):
        hook = folder / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
        hook.chmod(0o755)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_users_checkout_is_not_touched(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its HEAD, index, configuration, objects or files, from within it and with its own
    variables set, as in a hook."""
    bare = bare_repository(tmp_path / "plain.git")
    before = everything(checkout)
    monkeypatch.chdir(checkout)
    environ = os.environ | {
        "GIT_DIR": str(checkout / ".git"),
        "GIT_WORK_TREE": str(checkout),
        "GIT_INDEX_FILE": str(checkout / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(checkout / ".git" / "objects"),
    }
    push(Remote(f"file://{bare}"), adding(1), message="m", environ=environ)
    push(Remote(f"file://{bare}"), adding(2), message="m", environ=environ)
    assert everything(checkout) == before
    assert not (tmp_path / "hook-ran").exists()


def marking(folder: Path, name: str) -> str:
    """A program that leaves a mark."""
    file = folder / name
    file.write_text(f"#!/bin/sh\ntouch {folder}/ran-{name}\n")
    file.chmod(0o755)
    return str(file)


def test_the_users_configuration_runs_nothing_and_still_knows_the_proxy(tmp_path: Path) -> None:
    config = tmp_path / ".gitconfig"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    marking(hooks, "reference-transaction")
    config.write_text(
        "[core]\n"
        f"hooksPath = {hooks}\nfsmonitor = {marking(tmp_path, 'monitor')}\n"
        f"sshCommand = {marking(tmp_path, 'ssh')}\naskPass = {marking(tmp_path, 'ask')}\n"
        f"[credential]\nhelper = {marking(tmp_path, 'helper')}\n"
        "[http]\nproxy = http://proxy.example:3128\n"
        '[http "https://ghe.example/"]\nsslCAInfo = /ca.pem\nextraheader = X: secret\n'
        '[url "https://elsewhere.example/"]\ninsteadOf = https://github.com/\n'
        "[commit]\ngpgSign = true\n"
    )
    environ = os.environ | {
        "HOME": str(tmp_path),
        "GIT_ASKPASS": marking(tmp_path, "askpass"),
        "GIT_TRACE_CURL": "1",
    }
    with serving(tmp_path / "server", TOKEN) as server:
        with scratch_repository(server.url(), None, environ) as scratch:
            assert scratch.git("config", "http.proxy").text == "http://proxy.example:3128"
            assert scratch.git("config", "http.https://ghe.example/.sslcainfo").text == "/ca.pem"
            listed = scratch.git("config", "--list").text
        local = Remote(server.url())
        config.write_text(config.read_text().replace("proxy =", "cookieFile ="))
        with pytest.raises(MachineError, match="CANARY_TOKEN"):
            push(local, adding(1), message="m", environ=environ)
    bare = bare_repository(tmp_path / "plain.git")
    push(Remote(f"file://{bare}"), adding(1), message="m", environ=environ)
    assert "insteadof" not in listed.lower()
    assert "X: secret" not in listed
    assert list(tmp_path.rglob("ran-*")) == []


def test_a_machine_without_git_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="git is not installed") as caught,
        scratch_repository(environ={"PATH": str(tmp_path)}),
    ):
        pass
    assert caught.value.exit_code == 2


def test_a_git_that_reads_what_it_should_not_is_refused(tmp_path: Path) -> None:
    environ = stand_in(tmp_path / "bin", 'echo "git version 2.25.1"')
    with (
        pytest.raises(MachineError, match=r"git version 2\.25\.1 is too old .*2\.32 or newer"),
        scratch_repository(environ=environ),
    ):
        pass


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = bare_repository(tmp_path / "plain.git")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def failing(folder: Path) -> None:
        raise UsageError("no")

    push(Remote(f"file://{bare}"), adding(1), message="m")
    with pytest.raises(UsageError):
        push(Remote(f"file://{bare}"), failing, message="m")
    assert list(scratch.iterdir()) == []


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    """The process that talks to the server holds git's pipes open."""
    started = tmp_path / "started"
    environ = stand_in(
        tmp_path / "bin",
        f'case "$1" in fetch) sleep 60 &\necho $! > "{started}"\nwait;; esac\n'
        f'exec {real_git()} "$@"',
    )
    with (
        scratch_repository(environ=environ) as scratch,
        pytest.raises(MachineError, match="did not end within 0 s"),
    ):
        scratch.git("fetch", timeout_s=0.5)
    end = time.monotonic() + 30
    while lives(int(started.read_text())) and time.monotonic() < end:
        time.sleep(0.02)
    assert not lives(int(started.read_text()))
