"""`make` says what it installs, where, and how large that is, before it does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("target", "installs"), [("demo", 2), ("test", 3), ("release-candidate", 1)]
)
def test_every_installation_is_announced_with_its_size(
    target: str, installs: int, tmp_path: Path
) -> None:
    places = [f"{name}={tmp_path}/fresh" for name in ("VENV", "RELEASE")]
    done = subprocess.run(
        ["make", "--dry-run", target, *places], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    found = [number for number, line in enumerate(lines) if " -m pip " in line]
    assert len(found) == installs
    for number in found:
        told = lines[number - 1]
        assert told.startswith('echo "Installing ')
        assert f"{tmp_path}/fresh" in told
        assert re.search(r"\d (GB|MB)", told), told
