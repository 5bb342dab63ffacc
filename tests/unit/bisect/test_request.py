"""The arguments: what is refused before anything runs, and in which folder it continues."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from canary.bisect.bisect import Request, _Bisect, _everywhere, run_bisect
from canary.errors import UsageError
from tests.unit.bisect.workshop import Repository

CONFIG = "name: theirs\ncommand: [python, train.py]\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Four commits; the config comes with the second one."""
    made = Repository(tmp_path / "theirs")
    made.commit("c0", {"train.py": "pass\n"})
    for number in (1, 2, 3):
        made.commit(f"c{number}", {"canary.yaml": CONFIG, "train.py": f"pass\nx = {number}\n"})
    monkeypatch.chdir(made.root)
    return made


def request(good: str = "HEAD~2", **rest: Any) -> Request:
    return Request(Path("canary.yaml"), good, "HEAD", **rest)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(settings=("repeats=3",)), "--set repeats=3 does not work with bisect"),
        (request(check="sped"), "unknown check 'sped'"),
        (Request(Path("none.yaml"), "HEAD~2", "HEAD"), "no config at"),
        (request(good="HEAD"), "are the same commit"),
    ],
)
def test_it_is_refused_before_anything_runs(made: Repository, asked: Request, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_bisect(asked, lambda line: None)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (made.root / "canary_output").exists()


def test_a_config_outside_the_repository_runs_everywhere(made: Repository, tmp_path: Path) -> None:
    outside, inside = tmp_path / "mine.yaml", made.root / "canary.yaml"
    outside.write_text(CONFIG)
    assert _everywhere(made.root, ("HEAD~2", "HEAD"), outside)
    assert not _everywhere(made.root, ("HEAD~2", "HEAD"), inside)
    assert _everywhere(made.root, ("HEAD~3", "HEAD"), inside), "the good end has none"


def test_equal_arguments_find_their_folder_again(made: Repository) -> None:
    def folder(asked: str = "a", **rest: Any) -> Path:
        with contextlib.ExitStack() as around:
            bisect = _Bisect(request(**rest), made.root, lambda line: None, around)
            return bisect._folder({"--good": asked}, {"content": "varies"})[0]

    first = folder()
    first.mkdir(parents=True)
    assert folder() == first
    for other in ({"check": "data"}, {"setup": "make"}, {"settings": ("seed=2",)}, {"asked": "b"}):
        assert folder(**other) != first
    assert folder(output_dir=Path("mine")) == made.root / "mine"
