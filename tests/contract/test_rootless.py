"""The image script without an image: said in one line, before anything runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_image_rootless.sh"


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With programs that know of no image."""
    for name in ("buildah", "podman", "crun"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\ncase "$*" in *exists*) exit 1 ;; esac\necho ran\n')
        program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(SCRIPT), *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_image_that_was_never_built_cannot_be_run(tmp_path: Path) -> None:
    done = run(tmp_path, "--no-build", "--run", "demo")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "build_image_rootless: there is no image localhost/rlhf-canary: "
        "build it first, without --no-build"
    ]


def test_neither_building_nor_running_is_no_use(tmp_path: Path) -> None:
    for arguments in (["--no-build"], ["--no-build", "--run"]):
        done = run(tmp_path, *arguments)
        assert done.returncode == 2
        assert "--no-build does nothing without --run" in done.stderr
