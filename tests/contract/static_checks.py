"""Programs that check files: where they are, and what is done where one is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ZIZMOR = Path(__file__).parents[2] / ".github" / "zizmor.yml"


def program(name: str) -> str:
    """Its path. Missing, the test is skipped on a user's machine and fails in CI."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found:
        return found
    missing = f"{name} is not installed; it comes with: pip install -e '.[dev]'"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def clean(command: list[str], stdin: str | None = None) -> None:
    """Passes when the program finds nothing; its findings are the failure's message."""
    done = subprocess.run(
        [program(command[0]), *command[1:]],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def zizmor(*paths: Path) -> None:
    """Workflows and actions, without asking the network."""
    options = ["--offline", "--no-progress", "--strict-collection", "--config", str(ZIZMOR)]
    clean(["zizmor", *options, *map(str, paths)])


def shell_is_clean(script: str) -> None:
    """A `run:` block, as GitHub runs it with `shell: bash`."""
    clean(["shellcheck", "--shell=bash", "-"], f"set -eo pipefail\n{script}\n")
