"""A copy of the working folder has what a training needs, and never hangs or fills the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from canary.check import copied
from canary.check.copied import TooLarge, copy_of, remove_copy


def names(folder: Path) -> set[str]:
    """Everything below a folder."""
    return {str(one.relative_to(folder)) for one in folder.rglob("*")}


def test_what_a_training_does_not_need_is_left_out(tmp_path: Path) -> None:
    here = tmp_path / "here"
    for name in (".git/config", ".venv/pyvenv.cfg", "src/__pycache__/a.pyc", "runs/1/log.txt"):
        (here / name).parent.mkdir(parents=True)
        (here / name).touch()
    (here / "src" / "a.py").write_text("x")
    (here / "src" / "empty").mkdir()
    copy_of(here, here / "runs" / "check" / "copy", [here / "runs"])
    found = names(here / "runs" / "check" / "copy")
    assert found == {"src", "src/a.py", "src/empty"}


def test_links_lead_to_the_same_content(tmp_path: Path) -> None:
    here, to = tmp_path / "here", tmp_path / "copy"
    here.mkdir()
    (tmp_path / "data.json").write_text("1")
    (here / "train.py").write_text("2")
    (here / "out").symlink_to("../data.json")
    (here / "in").symlink_to("train.py")
    (here / "around").symlink_to(here)
    copy_of(here, to, [])
    (to / "deeper").mkdir()
    assert (to / "out").read_text() == "1"
    assert (to / "in").readlink() == Path("train.py")
    assert (to / "around" / "train.py").samefile(to / "train.py"), "one of the folder to itself"


def test_links_lead_to_files_that_are_there(tmp_path: Path) -> None:
    here, to = tmp_path / "here", tmp_path / "runs" / "1" / "copy"
    (here / "node_modules").mkdir(parents=True)
    (here / "node_modules" / "a.json").write_text("1")
    (here / "train.py").write_text("2")
    (here / "left-out").symlink_to("node_modules/a.json")
    (here / "over").symlink_to("../here/train.py")
    (here / "absolute").symlink_to(here / "train.py")
    for one, other in (("circle", "back"), ("back", "circle"), ("gone", "nowhere")):
        (here / one).symlink_to(other)
    copy_of(here, to, [])
    assert (to / "left-out").read_text() == "1"
    for name in ("over", "absolute"):
        assert (to / name).samefile(to / "train.py"), name
    assert (to / "circle").readlink() == Path("back")
    assert (to / "gone").readlink() == Path("nowhere")


def test_a_file_that_grows_or_vanishes_meanwhile_ends_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, to = tmp_path / "here", tmp_path / "copy"
    here.mkdir()
    for name in ("a", "b"):
        (here / name).write_text("12")
    planned = copied._planned

    def later(*args: Any) -> Any:
        plan = planned(*args)
        (here / "a").write_text("1234")
        (here / "b").unlink()
        return plan

    monkeypatch.setattr(copied, "_planned", later)
    copy_of(here, to, [])
    assert names(to) == {"a"}
    assert (to / "a").read_text() == "12"


def test_a_copy_is_removed_whatever_its_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As root, no permission stops anything.
    monkeypatch.setattr(os, "access", lambda *_: False)
    inner = tmp_path / "copy" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    for folder in (inner, inner.parent):
        folder.chmod(0o500)
    remove_copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_pipe_is_left_out(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    os.mkfifo(here / "pipe")
    copy_of(here, tmp_path / "copy", [])
    assert names(tmp_path / "copy") == set()


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_BYTES", "MOST_FOLDERS"])
def test_too_much_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    here = tmp_path / "here"
    for name in ("a", "b", "c"):
        (here / name).mkdir(parents=True)
        (here / name / "file").write_text("xx")
    monkeypatch.setattr(copied, limit, 2)
    with pytest.raises(TooLarge, match="more than"):
        copy_of(here, tmp_path / "copy", [])
    assert not (tmp_path / "copy").exists()
