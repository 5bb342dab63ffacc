"""docs/first_gate.md does what it says: its blocks, one after the other, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.pages import DOCS, examples

PAGE = DOCS / "first_gate.md"


@pytest.mark.train
@pytest.mark.slow
def test_the_page_leads_from_nothing_to_a_gate(tmp_path: Path) -> None:
    (script,) = examples(PAGE, "python")
    (answer,) = examples(PAGE, "text")
    setup, broken, comment, gate = examples(PAGE, "bash")
    (tmp_path / "train.py").write_text(script)

    def run(block: str) -> subprocess.CompletedProcess[str]:
        who = {f"GIT_{role}_{key}": "t@t" for role in ("AUTHOR", "COMMITTER") for key in KEYS}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", "-euo", "pipefail", "-c", block]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **who, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(setup)
    assert done.returncode == 0, done.stderr
    done = run(broken)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(answer)
    done = run(comment)
    assert done.returncode == 0, done.stderr
    assert "label tokens 1,778" in done.stdout
    done = run(gate)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".github" / "workflows" / "canary.yml").exists()


KEYS = ("NAME", "EMAIL")
