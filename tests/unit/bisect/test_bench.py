"""Worktrees, environments and caches of commits: separate, few, and gone at the end."""

from __future__ import annotations

import functools
import stat
from pathlib import Path

import pytest

from canary.bisect.bench import MOST_KEPT, CommitBench, Recipe
from canary.bisect.caches import own_caches
from canary.bisect.model import CannotRun
from canary.campaign import environments
from tests.unit.bisect.workshop import Repository

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


def bench_of(made: Repository, folder: Path, setup: str | None = None) -> CommitBench:
    history = made.between("HEAD~9", "HEAD")
    config = made.root / "canary.yaml"
    return CommitBench(history, Recipe(made.root, config, False, setup, (), folder))


def state(bench: CommitBench, subject: str) -> int:
    places = [place for place, c in enumerate(bench.history.commits) if c.subject == subject]
    return bench.history.masks[places[0]]


def test_a_commit_runs_its_own_files_beside_the_users_checkout(
    made: Repository, tmp_path: Path
) -> None:
    (made.root / "number.txt").write_text("changed")
    bench = bench_of(made, tmp_path / "out")
    try:
        side = bench.side(state(bench, "c2"))
        assert (side.folder / "number.txt").read_text() == "2"
        assert side.config == side.folder / "canary.yaml"
        assert not side.folder.is_relative_to(made.root)
        assert side.output_dir == tmp_path / "out" / bench.label(state(bench, "c2"))
        assert bench.side(state(bench, "c2")) is side
    finally:
        bench.close()
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
    bench = bench_of(made, tmp_path / "out")
    try:
        with pytest.raises(CannotRun, match=why):
            bench.side(state(bench, subject))
        assert len(made.git("worktree", "list").splitlines()) == 1
    finally:
        bench.close()


@pytest.mark.usefixtures("without_pip")
def test_a_commit_whose_setup_fails_cannot_run_and_its_output_is_kept(
    made: Repository, tmp_path: Path
) -> None:
    bench = bench_of(made, tmp_path / "out", "echo no compiler >&2; exit 3")
    try:
        with pytest.raises(CannotRun, match="setup ended with exit code 3: no compiler"):
            bench.side(state(bench, "c2"))
    finally:
        bench.close()
    (log,) = (tmp_path / "out").glob("setup-*.log")
    assert log.read_text() == "no compiler\n"


@pytest.mark.usefixtures("without_pip")
def test_setup_sees_only_the_commits_own_caches(made: Repository, tmp_path: Path) -> None:
    setup = 'touch "$XDG_CACHE_HOME/built"; env > environment.txt'
    bench = bench_of(made, tmp_path / "out", setup)
    try:
        first, second = (bench.side(state(bench, name)) for name in ("c1", "c2"))
        for side in (first, second):
            cache = Path(side.environment["XDG_CACHE_HOME"])
            assert (cache / "built").exists()
            assert (
                f"TRITON_CACHE_DIR={cache.parent / 'triton'}"
                in (side.folder / "environment.txt").read_text()
            )
        assert first.environment["XDG_CACHE_HOME"] != second.environment["XDG_CACHE_HOME"]
        assert first.python != second.python
    finally:
        bench.close()


def test_only_a_few_commits_are_kept_and_the_ends_always(made: Repository, tmp_path: Path) -> None:
    bench = bench_of(made, tmp_path / "out")
    good, bad = 0, bench.history.bad_state
    try:
        sides = [bench.side(end) for end in (good, bad)]
        built = [bench.side(state(bench, f"c{n}")) for n in (1, 2, 5, 6, 7)]
        assert all(side.folder.exists() for side in sides)
        assert [side.folder.exists() for side in built] == [False] + [True] * MOST_KEPT
        assert len(made.git("worktree", "list").splitlines()) == 1 + 2 + MOST_KEPT
        again = bench.side(state(bench, "c1"))
        assert (again.folder / "number.txt").read_text() == "1"
    finally:
        bench.close()
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
    for setup in (None, "true"):
        bench = bench_of(made, tmp_path / f"out-{setup}", setup)
        try:
            if setup is None:
                bench.side(bench.history.bad_state)
                continue
            with pytest.raises(CannotRun, match=r"/opt/venv/bin/python3\.11.*write `python` there"):
                bench.side(bench.history.bad_state)
        finally:
            bench.close()
