"""The release's scripts against a real remote: tags bound to an image, main left alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.contract.git_server import git
from tests.contract.workflow_files import ROOT

DIGEST = f"ghcr.io/rlhf-canary/rlhf-canary@sha256:{'a' * 64}"
OTHER = f"ghcr.io/rlhf-canary/rlhf-canary@sha256:{'b' * 64}"


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository whose main is a release's files at version 1.2.3."""
    bare, work = tmp_path / "remote.git", tmp_path / "work"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    (work / "scripts").mkdir(parents=True)
    (work / "canary").mkdir()
    for name in ("release_check.sh", "release_tag.sh"):
        shutil.copy(ROOT / "scripts" / name, work / "scripts" / name)
    (work / "image.txt").touch()
    (work / "canary" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    git(work, "init", "-q", "-b", "main")
    git(work, "add", "--all")
    git(work, "commit", "-qm", "first")
    git(work, "push", "-q", str(bare), "main")
    return bare


def clone(remote: Path, version: str | None = None) -> Path:
    """A fresh checkout of main, as the release's job has one; with another version, if asked."""
    folder = remote.parent / f"clone-{len(list(remote.parent.iterdir()))}"
    subprocess.run(["git", "clone", "-q", str(remote), str(folder)], check=True)
    if version:
        (folder / "canary" / "__init__.py").write_text(f'__version__ = "{version}"\n')
        git(folder, "commit", "-qam", version)
        git(folder, "push", "-q", "origin", "main")
    return folder


def released(folder: Path, version: str, image: str = DIGEST) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "scripts/release_tag.sh", version, image],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_both_tags_name_the_commit_that_names_the_image(remote: Path) -> None:
    before = git(remote, "rev-parse", "main")
    done = released(clone(remote), "1.2.3")
    assert done.returncode == 0, done.stderr
    assert git(remote, "show", "v1.2.3:image.txt") == DIGEST
    assert git(remote, "rev-parse", "v1^{commit}") == git(remote, "rev-parse", "v1.2.3^{commit}")
    assert git(remote, "rev-parse", "v1.2.3^{commit}^") == before
    assert git(remote, "rev-parse", "main") == before
    assert git(remote, "show", "main:image.txt") == ""


def test_the_next_release_moves_the_short_tag_alone(remote: Path) -> None:
    released(clone(remote), "1.2.3")
    done = released(clone(remote, "1.10.0"), "1.10.0", OTHER)
    assert done.returncode == 0, done.stderr
    assert git(remote, "show", "v1:image.txt") == OTHER
    assert git(remote, "show", "v1.2.3:image.txt") == DIGEST


@pytest.mark.parametrize(
    ("version", "image", "said"),
    [
        ("1.2.3", OTHER, "released already"),
        ("1.2.4", DIGEST, "canary/__init__.py says 1.2.3"),
        ("01.2.3", DIGEST, "no version"),
    ],
)
def test_what_may_not_be_released_is_refused(
    remote: Path, version: str, image: str, said: str
) -> None:
    released(clone(remote), "1.2.3")
    before = git(remote, "show-ref")
    done = released(clone(remote), version, image)
    assert done.returncode != 0
    assert said in done.stderr
    assert git(remote, "show-ref") == before


def test_an_image_by_tag_is_refused(remote: Path) -> None:
    done = released(clone(remote), "1.2.3", "ghcr.io/rlhf-canary/rlhf-canary:latest")
    assert done.returncode != 0
    assert "no image by digest" in done.stderr


def test_an_older_version_does_not_move_the_short_tag_back(remote: Path) -> None:
    released(clone(remote), "1.2.3")
    done = released(clone(remote, "1.2.1"), "1.2.1")
    assert done.returncode != 0
    assert "v1.2.3 is newer" in done.stderr


def test_a_tag_that_appeared_meanwhile_leaves_both_as_they_were(remote: Path) -> None:
    """The check saw nothing, the push does: both tags or neither."""
    late = clone(remote)
    released(clone(remote), "1.2.3")
    before = git(remote, "show-ref")
    done = released(late, "1.2.3", OTHER)
    assert done.returncode != 0
    assert git(remote, "show-ref") == before
