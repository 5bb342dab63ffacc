"""`canary baseline ...` on the baseline branch: what it prints, whose remote and token it takes."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from canary.baseline.branch import Remote, pull, push
from canary.baseline.history import drawer, entries
from canary.baseline.origin import Surroundings, context_of_run, remote_of, token_for
from canary.baseline.verbs import pull_text
from canary.campaign import calibrate as calibrating
from canary.campaign.calibrate import bootstrap
from canary.cli import main
from canary.config.load import load_config
from canary.config.token import SHOWN, Token
from canary.errors import CanaryError, MachineError, RecordError, RunFailed, UsageError
from canary.record.types import RunRecord
from tests.contract.git_server import GitServer, bare_repository, git, serving
from tests.unit.branching import adding, run_ids, sha_of, stored, write_branch
from tests.unit.comparing import committed, record, write

TOKEN = "ghs_" + 3 * "0123456789ab"
NOW = datetime(2026, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Done:
    """How a verb ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Place:
    """A checkout whose origin is a repository on a server, and the command line in it."""

    server: GitServer
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def canary(self, *words: str) -> Done:
        """Runs `canary baseline ...`, as a person would."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in [*os.environ]:
                if name.startswith(("GITHUB_", "CANARY_")):
                    patch.delenv(name)
            for name, value in ({"CANARY_TOKEN": TOKEN} | self.environ).items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            with pytest.raises(SystemExit) as ended:
                main(["baseline", *words])
        return Done(int(str(ended.value.code)), out.getvalue(), err.getvalue())

    def run(self, number: int) -> str:
        """A run's folder."""
        name = f"run{number}"
        write(self.folder / name / "metrics.json", committed(record(number), sha_of(number)))
        return name

    @property
    def remote(self) -> Remote:
        return Remote(self.server.url(), token=Token(TOKEN))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "checkout"
    folder.mkdir()
    with serving(tmp_path / "server", TOKEN) as server:
        server.make()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "remote", "add", "origin", server.url())
        yield Place(server, folder)


def test_a_person_pushes_reads_and_prunes(place: Place, tmp_path: Path) -> None:
    done = place.canary("history")
    assert done.stdout.strip().endswith("does not exist yet: it holds no runs")
    done = place.canary("push", place.run(2), place.run(1))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"2 runs of {sha_of(1)[:9]}, {sha_of(2)[:9]} added to branch")
    done = place.canary("push", place.run(3), "--accept", "twice the batch")
    assert done.returncode == 0, done.stderr
    assert stored(place.remote, tmp_path / "one") == run_ids(1, 2, 3)
    shown = place.canary("history", "--remote", "origin").stdout
    assert shown == place.canary("history").stdout
    rows = [line.split() for line in shown.splitlines()[2:]]
    assert [(row[0], row[1], row[2], row[7]) for row in rows] == [
        ("run-00001", sha_of(1)[:9], "-", "1"),
        ("run-00002", sha_of(2)[:9], "-", "1"),
        ("run-00003", sha_of(3)[:9], "-", "2"),
    ]
    assert rows[2][8:] == ["accepted:", "twice", "the", "batch"]
    done = place.canary("prune", "--remote", place.server.url(), "--keep", "1")
    assert done.stdout.startswith("removed 2 runs"), done.stderr
    assert stored(place.remote, tmp_path / "two") == run_ids(3)


def test_what_is_pulled_into_a_folder_is_compared_with(place: Place) -> None:
    done = place.canary("pull", "baselines")
    assert "is an empty history" in done.stdout
    assert place.canary("history", "baselines").stdout.strip() == "baselines holds no runs"
    place.canary("push", place.run(1))
    again = place.canary("pull", "baselines")
    assert (again.returncode, "name a new folder" in again.stderr) == (2, True)
    assert place.canary("pull", "others").returncode == 0
    assert "run-00001" in place.canary("history", "others").stdout


def test_a_pull_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, folder = Remote(f"file://{bare_repository(tmp_path / 'plain.git')}"), tmp_path / "new"
    push(remote, adding(1, 2, 3), message="m")
    written: list[Path] = []

    def full(self: Path, data: bytes) -> None:
        written.append(self)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        with self.open("wb") as file:
            file.write(data)

    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(MachineError, match=r"No space left.*free some space") as caught:
            pull_text(remote, here(tmp_path), folder)
        assert caught.value.exit_code == 4
    assert sorted(tmp_path.iterdir()) == before
    assert not folder.exists()
    pull_text(remote, here(tmp_path), folder)
    assert [path.name for path in folder.iterdir()] == ["v2"]


def test_wrong_usage_is_one_line_and_two(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place.run(1)
    monkeypatch.chdir(place.folder)
    for words, says in (
        (("push", run, "--accept", " "), "--accept needs a reason"),
        (("push", run, "--remote", "elsewhere"), "has no remote 'elsewhere'"),
        (("push", run, "--remote", "-x"), "nor the name of a remote"),
        (("push", "nowhere"), "no record at"),
        (("prune",), "prune needs a folder or --remote"),
        (("prune", "x", "--remote", "origin"), "prune needs a folder or --remote"),
        (("history", "x", "--remote", "origin"), "two histories"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["baseline", *words])
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
    assert git(place.server.root / "repo.git", "for-each-ref") == ""


def test_the_token_is_in_nothing_that_is_printed(place: Place) -> None:
    place.server.token = "another"
    for words in (("push", place.run(1), "-v"), ("pull", "x", "-v"), ("history",)):
        done = place.canary(*words)
        assert done.returncode == 4
        assert "CANARY_TOKEN" in done.stderr
        assert TOKEN not in done.stdout + done.stderr


def test_a_pull_request_does_not_write(place: Place, tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(
        json.dumps({"repository": {"default_branch": "main"}, "ref": "refs/heads/main"})
    )
    job = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(event)}
    run = place.run(1)
    place.environ = job | {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/7/merge"}
    verbs = (("push", run), ("prune", "--remote", "origin"), ("bootstrap",))
    for words in verbs:
        done = place.canary(*words)
        assert (done.returncode, "may not write the baseline" in done.stderr) == (2, True)
    assert not any("receive-pack" in line for line in place.server.requests)
    assert place.canary("history").returncode == 0
    place.environ = job | {"GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main"}
    assert place.canary("push", run).returncode == 0


def here(tmp_path: Path, **environ: str) -> Surroundings:
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return Surroundings(known | environ, tmp_path, NOW)


def test_the_remote_is_githubs_own_or_origin_or_the_one_named(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", f"https://user:{TOKEN}@github.com/o/r.git")
    git(tmp_path, "remote", "add", "mine", "git@github.com:me/r.git")
    bare_repository(tmp_path / "plain.git")
    job = {"GITHUB_SERVER_URL": "https://ghe.example", "GITHUB_REPOSITORY": "team/r"}
    asked: list[tuple[str | None, dict[str, str], str]] = [
        (None, job, "https://ghe.example/team/r.git"),
        (None, {}, "https://github.com/o/r.git"),
        ("mine", job, "git@github.com:me/r.git"),
        ("https://github.com/a/b", job, "https://github.com/a/b"),
        ("plain.git", {}, str(tmp_path / "plain.git")),
    ]
    for given, environ, url in asked:
        assert remote_of(here(tmp_path, **environ), given).url == url


def test_githubs_token_goes_to_githubs_server_alone() -> None:
    own = {"GITHUB_TOKEN": TOKEN}
    assert token_for("https://github.com/o/r", own) == Token(TOKEN)
    assert token_for("https://elsewhere.example/o/r", own) is None
    assert token_for("http://github.com/o/r", own) is None
    ghe = own | {"GITHUB_SERVER_URL": "https://ghe.example"}
    assert token_for("https://ghe.example/o/r", ghe) == Token(TOKEN)
    assert token_for("https://github.com/o/r", ghe) is None
    given = own | {"CANARY_TOKEN": "mine"}
    assert token_for("https://elsewhere.example/o/r", given) == Token("mine")
    assert token_for("https://github.com/o/r", {}) is None


def test_a_token_goes_with_the_user_name_that_its_server_expects() -> None:
    environ = {"CANARY_TOKEN": "mine", "CANARY_TOKEN_USER": "gitlab-ci-token"}
    found = token_for("https://gitlab.example/o/r", environ)
    assert found is not None
    assert found == Token("mine", "gitlab-ci-token")
    assert found != Token("mine")
    assert base64.b64decode(found.basic()) == b"gitlab-ci-token:mine"
    assert "mine" not in found.scrub(f"Authorization: basic {found.basic()}")
    assert SHOWN in found.scrub(found.basic())


@pytest.mark.parametrize("user", ["a:b", "a\nb", " ", "a/b"])
def test_a_user_name_cannot_change_the_request(user: str) -> None:
    with pytest.raises(UsageError, match="CANARY_TOKEN_USER"):
        token_for("https://gitlab.example/o/r", {"CANARY_TOKEN": "x", "CANARY_TOKEN_USER": user})


def test_the_commit_of_a_job_is_githubs_and_that_of_a_person_the_records(tmp_path: Path) -> None:
    """The record was written by the code that ran."""
    forged = committed(record(1), sha_of(1))
    mine = context_of_run(forged, here(tmp_path, USER="ada"), "meant so")
    assert (mine.commit, mine.verdict, mine.run_url) == (sha_of(1), "", "")
    assert mine.accepted is not None
    assert (mine.accepted.by, mine.accepted.reason) == ("ada", "meant so")
    assert mine.stored == "2026-02-01T00:00:00+00:00"
    job = {
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_SHA": sha_of(2),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_RUN_ID": "77",
        "GITHUB_ACTOR": "bob",
    }
    theirs = context_of_run(forged, here(tmp_path, **job), None)
    assert (theirs.commit, theirs.ref) == (sha_of(2), "refs/heads/main")
    assert theirs.run_url == "https://github.com/o/r/actions/runs/77"


def standing_in(monkeypatch: pytest.MonkeyPatch, status: str = "completed") -> list[int]:
    """Runs that take no time; returns their numbers."""
    ran: list[int] = []

    def completed_run(*_: object) -> tuple[RunRecord, Path]:
        ran.append(len(ran) + 1)
        if status != "completed" and len(ran) == 2:
            raise RunFailed(f"run 2 is {status}", status)
        return committed(record(len(ran)), sha_of(7)), Path(f"out/{len(ran)}")

    monkeypatch.setattr(calibrating, "completed_run", completed_run)
    return ran


def begin(remote: Remote, place: Surroundings, said: list[str]) -> str:
    loaded = load_config(None, [])
    return bootstrap(remote, place, loaded, said.append, runs=3, keep=50)


def test_bootstrap_fills_the_first_runs_in_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = bare_repository(tmp_path / "plain.git")
    remote, said = Remote(f"file://{bare}"), list[str]()
    ran = standing_in(monkeypatch)
    assert begin(remote, here(tmp_path), said).startswith(f"3 runs of {sha_of(7)[:9]} added")
    assert ran == [1, 2, 3]
    assert said[0] == "run 1/3  100.0 ms per step"
    pull(remote, tmp_path / "into")
    found = entries(drawer(tmp_path / "into", record()))
    assert [(e.run_id, e.commit, e.red) for e in found] == [
        (name, sha_of(7)[:12], False) for name in run_ids(1, 2, 3)
    ]


def test_bootstrap_writes_nothing_where_a_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = bare_repository(tmp_path / "plain.git")
    standing_in(monkeypatch, "oom")
    with pytest.raises(RunFailed):
        begin(Remote(f"file://{bare}"), here(tmp_path), [])
    assert git(bare, "for-each-ref") == ""


def test_bootstrap_looks_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after minutes on a GPU: the policy, and a branch that cannot be read."""
    bare = bare_repository(tmp_path / "plain.git")
    remote = Remote(f"file://{bare}")
    ran = standing_in(monkeypatch)
    with pytest.raises(UsageError, match="may not write"):
        begin(remote, here(tmp_path, GITHUB_EVENT_NAME="pull_request"), [])
    write_branch(bare, {"train.py": ""})
    with pytest.raises(RecordError, match="not a baseline history"):
        begin(remote, here(tmp_path), [])
    assert ran == []


def test_bootstrap_names_the_runs_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = bare_repository(tmp_path / "plain.git")
    hook = bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    standing_in(monkeypatch)
    said: list[str] = []
    with pytest.raises(CanaryError, match="is protected"):
        begin(Remote(f"file://{bare}"), here(tmp_path), said)
    assert said[-1].endswith("canary baseline push out/1 out/2 out/3")
