"""The canary's command line, started by another process of the canary."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import canary
from canary.machine.program import program


def test_a_file_of_the_project_hides_no_module(tmp_path: Path) -> None:
    for name in ("typer.py", "yaml.py", "queue.py"):
        (tmp_path / name).write_text("raise SystemExit('not this')\n")
    words = [*program(sys.executable), "--version"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, f"rlhf-canary {canary.__version__}\n"), said.stderr


def test_our_modules_are_started_in_one_way() -> None:
    folder = Path(canary.__file__).parent
    others = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if re.search(r'"-m",\s*"canary', path.read_text(encoding="utf-8"))
    ]
    assert others == []
