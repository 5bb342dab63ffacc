"""Which commits are suspects, what a checkout holds, and how one runs alone: separate, few, and
gone at the end."""

from __future__ import annotations

import functools
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from canary.bisect.candidates import MOST_KEPT, Commits
from canary.bisect.search import CannotRun, bits
from canary.bisect.states import own_caches
from canary.campaign import environments
from canary.errors import UsageError
from tests.unit.bisect.workshop import Repository, diamond


def subjects(commits: Commits, state: int) -> set[str]:
    return {commits.commits[place].subject for place in bits(state)}


def state(commits: Commits, subject: str) -> int:
    sha = next(commit.sha for commit in commits.commits if commit.subject == subject)
    return next(state for state, known in commits.runnable.items() if known == sha)


def test_a_checkout_holds_the_suspects_among_its_ancestors(tmp_path: Path) -> None:
    commits = diamond(tmp_path).between("good", "main")
    assert subjects(commits, commits.bad) == {
        *("a", "b", "s1", "s2", "e1", "merge side", "merge early", "d")
    }
    assert subjects(commits, state(commits, "b")) == {"a", "b"}
    assert subjects(commits, state(commits, "s2")) == {"s1", "s2"}
    assert subjects(commits, state(commits, "merge side")) == {"a", "b", "s1", "s2", "merge side"}
    assert state(commits, "d") == commits.bad
    early = next(commit.sha for commit in commits.commits if commit.subject == "e1")
    assert early not in commits.runnable.values(), "it began before the good commit"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("c2", "c1", "--good c2 is newer than --bad c1"),
        ("side", "c2", r"not an ancestor of --bad c2 \(try their merge base: --good [0-9a-f]{9}\)"),
        ("orphan", "c2", "they share nothing"),
        ("c1", "--output=x", "no commit '--output=x'"),
    ],
)
def test_ends_that_are_no_good_and_bad_are_refused_in_one_line(
    tmp_path: Path, good: str, bad: str, message: str
) -> None:
    made = Repository(tmp_path)
    for name in ("c0", "c1", "c2"):
        made.commit(name)
        made.git("tag", name)
    made.git("checkout", "-q", "-b", "side", "c1")
    made.commit("s")
    made.git("checkout", "-q", "--orphan", "orphan")
    made.commit("o")
    with pytest.raises(UsageError, match=message) as refused:
        made.between(good, bad)
    assert "\n" not in str(refused.value)


CONFIG = "name: theirs\ncommand: [python, train.py]\n"


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    """Ten commits with a config; the config of c3 is broken and c4 has none."""
    made = Repository(tmp_path / "theirs")
    for number in range(10):
        config = made.root / "canary.yaml"
        config.write_text(CONFIG + ("nonsense: 1\n" if number == 3 else ""))
        if number == 4:
            config.unlink()
        made.commit(f"c{number}", {"number.txt": str(number)})
    return made


@pytest.fixture
def without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setup that installs nothing: to make an environment with pip takes seconds."""
    bare = functools.partial(environments.new_environment, pip=False)
    monkeypatch.setattr(environments, "new_environment", bare)


def bench_of(made: Repository, folder: Path, setup: str | None = None) -> Commits:
    between = made.between("HEAD~9", "HEAD")
    code = replace(between.code, config=made.root / "canary.yaml", output_dir=folder)
    return replace(between, code=code, setup=setup, everywhere=False)


def test_a_commit_runs_its_own_files_beside_the_users_checkout(
    made: Repository, tmp_path: Path
) -> None:
    (made.root / "number.txt").write_text("changed")
    with closing(bench_of(made, tmp_path / "out")) as bench:
        side = bench.side(state(bench, "c2"))
        assert (side.folder / "number.txt").read_text() == "2"
        assert side.config == side.folder / "canary.yaml"
        assert not side.folder.is_relative_to(made.root)
        assert side.output_dir == tmp_path / "out" / bench.label(state(bench, "c2"))
        assert bench.side(state(bench, "c2")) is side
    assert not side.folder.exists()
    assert (made.root / "number.txt").read_text() == "changed"
    assert len(made.git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("subject", "why"),
    [("c3", "unknown key 'nonsense'"), ("c4", "canary.yaml is not in this commit")],
)
def test_a_commit_without_a_valid_config_cannot_run(
    made: Repository, tmp_path: Path, subject: str, why: str
) -> None:
    with closing(bench_of(made, tmp_path / "out")) as bench:
        with pytest.raises(CannotRun, match=why):
            bench.side(state(bench, subject))
        assert len(made.git("worktree", "list").splitlines()) == 1


@pytest.mark.usefixtures("without_pip")
def test_a_commit_whose_setup_fails_cannot_run_and_its_output_is_kept(
    made: Repository, tmp_path: Path
) -> None:
    with (
        closing(bench_of(made, tmp_path / "out", "echo no compiler >&2; exit 3")) as bench,
        pytest.raises(CannotRun, match="setup ended with exit code 3: no compiler"),
    ):
        bench.side(state(bench, "c2"))
    (log,) = (tmp_path / "out").glob("setup-*.log")
    assert log.read_text() == "no compiler\n"


@pytest.mark.usefixtures("without_pip")
def test_setup_sees_only_the_commits_own_caches(made: Repository, tmp_path: Path) -> None:
    setup = 'touch "$XDG_CACHE_HOME/built"; env > environment.txt'
    with closing(bench_of(made, tmp_path / "out", setup)) as bench:
        first, second = (bench.side(state(bench, name)) for name in ("c1", "c2"))
        for side in (first, second):
            cache = Path(side.environment["XDG_CACHE_HOME"])
            assert (cache / "built").exists()
            assert (
                f"TRITON_CACHE_DIR={cache.parent / 'triton_cache_dir'}"
                in (side.folder / "environment.txt").read_text()
            )
        assert first.environment["XDG_CACHE_HOME"] != second.environment["XDG_CACHE_HOME"]
        assert first.python != second.python


def test_only_a_few_commits_are_kept_and_the_ends_always(made: Repository, tmp_path: Path) -> None:
    with closing(bench_of(made, tmp_path / "out")) as bench:
        sides = [bench.side(end) for end in (0, bench.bad)]
        built = [bench.side(state(bench, f"c{n}")) for n in (1, 2, 5, 6, 7)]
        assert all(side.folder.exists() for side in sides)
        assert [side.folder.exists() for side in built] == [False] + [True] * MOST_KEPT
        assert len(made.git("worktree", "list").splitlines()) == 1 + 2 + MOST_KEPT
        assert (bench.side(state(bench, "c1")).folder / "number.txt").read_text() == "1"
    assert len(made.git("worktree", "list").splitlines()) == 1


def test_downloads_are_shared_and_builds_are_not(tmp_path: Path) -> None:
    shared = tmp_path / "home" / ".cache"
    for name in ("pip/http-v2", "pip/wheels", "uv/archive-v0", "uv/wheels-v5", "uv/sdists-v9"):
        (shared / name).mkdir(parents=True)
    base = {"HOME": str(tmp_path / "home"), "PYTHONPYCACHEPREFIX": "/somewhere"}
    own = own_caches(tmp_path / "own", base, command=True)
    assert own["HF_HOME"] == str(shared / "huggingface")
    assert own["TORCH_HOME"] == str(shared / "torch")
    assert (Path(own["PIP_CACHE_DIR"]) / "http-v2").resolve() == shared / "pip" / "http-v2"
    assert not (Path(own["PIP_CACHE_DIR"]) / "wheels").exists()
    assert (Path(own["UV_CACHE_DIR"]) / "archive-v0").resolve() == shared / "uv" / "archive-v0"
    assert not (Path(own["UV_CACHE_DIR"]) / "sdists-v9").exists()
    assert "PYTHONPYCACHEPREFIX" not in own
    ours = ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "HF_DATASETS_CACHE")
    for name in ours:
        assert Path(own[name]).is_relative_to(tmp_path / "own")
        assert stat.S_ISDIR(Path(own[name]).stat().st_mode)


def test_a_command_with_the_python_of_one_place_is_refused_beside_setup(
    made: Repository, tmp_path: Path
) -> None:
    config = "name: theirs\ncommand: [/opt/venv/bin/python3.11, train.py]\n"
    made.commit("c10", {"canary.yaml": config})
    with closing(bench_of(made, tmp_path / "out")) as bench:
        assert bench.side(bench.bad)
    with (
        closing(bench_of(made, tmp_path / "out", "true")) as bench,
        pytest.raises(CannotRun, match=r"/opt/venv/bin/python3\.11.*write `python` there"),
    ):
        bench.side(bench.bad)
