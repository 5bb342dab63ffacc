"""The baseline branch on a real git server: created, added to, by many at once, and bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from canary.baseline.branch import Remote, pull, push
from canary.baseline.history import NOISE_FILE, drawer, select
from canary.config.token import Token
from canary.errors import InputError, MachineError, RecordError
from canary.record import jsonio
from tests.contract.git_server import GitServer, bare_repository, git, serving
from tests.unit.branching import REF, adding, parents_and_count, run_ids, stored, write_branch
from tests.unit.comparing import noise_model, record

TOKEN = "ghs_" + 3 * "0123456789ab"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with serving(tmp_path / "server", TOKEN) as running:
        yield running


@pytest.fixture
def place(server: GitServer) -> tuple[Remote, Path]:
    """A remote without a baseline branch, and its repository."""
    return Remote(server.url(), token=Token(TOKEN)), server.make()


@pytest.fixture
def local(tmp_path: Path) -> tuple[Remote, Path]:
    bare = bare_repository(tmp_path / "plain.git")
    return Remote(f"file://{bare}"), bare


def no_wait(number: int) -> None:
    pass


def test_a_missing_branch_is_no_baseline_and_no_error(
    place: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, _ = place
    assert pull(remote, tmp_path / "into") is None


def test_the_first_run_creates_the_branch_and_the_second_adds_to_it(
    place: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, bare = place
    first = push(remote, adding(1), message="first")
    assert first.tries == 1
    assert git(bare, "rev-parse", REF) == first.sha
    assert stored(remote, tmp_path / "one") == run_ids(1)
    second = push(remote, adding(2), message="second")
    assert stored(remote, tmp_path / "two") == run_ids(1, 2)
    assert git(bare, "rev-parse", REF) == second.sha != first.sha
    assert parents_and_count(bare) == ("", "1")
    assert git(bare, "log", "-1", "--format=%an %s", REF) == "rlhf-canary second"


def test_other_branches_are_left_alone(local: tuple[Remote, Path]) -> None:
    remote, bare = local
    main = write_branch(bare, {"train.py": "print()"})
    git(bare, "update-ref", "refs/heads/main", main)
    git(bare, "update-ref", "-d", REF)
    push(remote, adding(1), message="m")
    assert git(bare, "rev-parse", "refs/heads/main") == main
    assert git(bare, "for-each-ref", "--format=%(refname)").split() == [REF, "refs/heads/main"]


@pytest.mark.slow
def test_twelve_writers_at_once_lose_nothing(server: GitServer, tmp_path: Path) -> None:
    bare = server.make()
    remote = Remote(server.url(), token=Token(TOKEN))
    with ThreadPoolExecutor(12) as pool:
        pushed = list(pool.map(lambda n: push(remote, adding(n), message="m"), range(1, 13)))
    assert stored(remote, tmp_path / "all") == run_ids(*range(1, 13))
    assert parents_and_count(bare) == ("", "1")
    assert len({one.sha for one in pushed}) == 12
    assert max(one.tries for one in pushed) > 1, "they never met, so that nothing was tried"


def overtaking(remote: Remote, times: int) -> tuple[list[int], Callable[[Path], None]]:
    """A change that stores run 1, overtaken by another writer in the first so many tries."""
    seen: list[int] = []

    def change(folder: Path) -> None:
        seen.append(len(seen) + 1)
        if len(seen) <= times:
            push(remote, adding(100 + len(seen)), message="faster")
        adding(1)(folder)

    return seen, change


def test_a_writer_that_was_overtaken_begins_anew(
    local: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, _ = local
    waited: list[int] = []
    seen, change = overtaking(remote, 2)
    pushed = push(remote, change, message="m", wait=waited.append)
    assert pushed.tries == 3 == len(seen)
    assert waited == [1, 2]
    assert stored(remote, tmp_path / "all") == run_ids(1, 101, 102)


def test_a_writer_that_is_always_overtaken_gives_up(local: tuple[Remote, Path]) -> None:
    remote, bare = local
    _, change = overtaking(remote, 99)
    with pytest.raises(MachineError, match="not written in 3 tries: others were faster"):
        push(remote, change, message="m", attempts=3, wait=no_wait)
    assert "run-00001" not in git(bare, "ls-tree", "-r", "--name-only", REF)


def test_a_run_that_is_there_already_is_no_error(local: tuple[Remote, Path]) -> None:
    """A report that is run again, or a push whose answer was lost."""
    remote, _ = local
    first = push(remote, adding(1), message="m")
    assert push(remote, adding(1), message="again") == first


@pytest.mark.parametrize("broken", ["broken_before", "broken_after"])
def test_a_connection_that_broke_is_tried_again(
    server: GitServer, tmp_path: Path, broken: str
) -> None:
    server.make()
    remote = Remote(server.url(), token=Token(TOKEN))
    setattr(server, broken, [502])
    assert push(remote, adding(1), message="m", wait=no_wait).tries == 2
    assert stored(remote, tmp_path / "all") == run_ids(1)


def test_a_server_that_stays_broken_is_named(server: GitServer) -> None:
    server.make()
    server.broken_before = [502] * 9
    remote = Remote(server.url(), token=Token(TOKEN))
    with pytest.raises(MachineError, match=r"not written in 2 tries: .*HTTP 502"):
        push(remote, adding(1), message="m", attempts=2, wait=no_wait)


def test_the_branch_stays_bounded(local: tuple[Remote, Path], tmp_path: Path) -> None:
    remote, bare = local
    push(remote, adding(*range(1, 13)), message="m", keep=20)
    push(remote, adding(13), message="m", keep=5)
    # The first three of the period are the anchor of the drift.
    assert stored(remote, tmp_path / "all") == run_ids(1, 2, 3, 9, 10, 11, 12, 13)
    assert parents_and_count(bare) == ("", "1")


def test_a_branch_that_grew_parents_is_one_commit_again(local: tuple[Remote, Path]) -> None:
    remote, bare = local
    first = push(remote, adding(1), message="m")
    child = git(bare, "commit-tree", f"{first.sha}^{{tree}}", "-p", first.sha, "-m", "by hand")
    git(bare, "update-ref", REF, child)
    push(remote, adding(1), message="m")
    assert parents_and_count(bare) == ("", "1")


def test_noise_models_travel_with_the_runs(local: tuple[Remote, Path], tmp_path: Path) -> None:
    remote, _ = local

    def change(folder: Path) -> None:
        adding(1, 2)(folder)
        text = jsonio.dumps(noise_model().model_dump())
        (drawer(folder, record()) / NOISE_FILE).write_text(text)

    push(remote, change, message="m", keep=1)
    pull(remote, tmp_path / "all")
    assert select(tmp_path / "all", record(9)).noise_file is not None


def test_a_folder_that_holds_something_is_not_written_into(
    local: tuple[Remote, Path], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="is not empty"):
        pull(local[0], tmp_path / "mine")


def test_a_change_that_stores_nothing_writes_no_branch(local: tuple[Remote, Path]) -> None:
    remote, bare = local
    with pytest.raises(InputError, match="nothing to write"):
        push(remote, lambda folder: None, message="m")
    assert git(bare, "for-each-ref") == ""


def test_a_change_cannot_bring_links_or_other_files(
    local: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, bare = local
    secret = tmp_path / "secret"
    secret.write_text("x")

    def linking(folder: Path) -> None:
        adding(1)(folder)
        (drawer(folder, record()) / "link.json").symlink_to(secret)

    def straying(folder: Path) -> None:
        adding(1)(folder)
        (folder / "notes.txt").write_text("x")

    for change in (linking, straying):
        with pytest.raises(RecordError):
            push(remote, change, message="m")
    assert git(bare, "for-each-ref") == ""
