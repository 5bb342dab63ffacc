"""The process that draws has no secret, and no way of its own to fail."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from canary.errors import MachineError
from canary.gate import page


def test_the_process_knows_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    said = page.confined(subprocess.getoutput, "env")
    assert "PATH=" in said
    assert "secret" not in said
    assert "GITHUB" not in said


def test_a_process_that_dies_is_one_clear_line() -> None:
    with pytest.raises(MachineError, match="its process ended with exit code -6"):
        page.confined(os.abort)  # type: ignore[arg-type]


def test_a_process_without_end_is_ended_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "WALL_S", 0.3)
    with pytest.raises(MachineError, match=r"it takes more than 0\.3 s"):
        page.confined(time.sleep, 60)  # type: ignore[arg-type]
