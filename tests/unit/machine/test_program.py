"""The canary's command line, started by another process of the canary."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import canary
from canary.machine.program import hidden_module, program


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


@pytest.mark.parametrize(
    ("file", "said", "named"),
    [
        ("json.py", "AttributeError: partially initialized module 'json' has no attribute", True),
        ("torch.py", "No module named 'torch.distributed'; 'torch' is not a package", True),
        ("datasets/__init__.py", "ImportError: cannot import name 'Dataset' from 'datasets'", True),
        ("canary.py", "No module named 'canary.cli'; 'canary' is not a package", True),
        ("json.py", "KeyError: 'json'", False),
        ("mine.py", "ImportError: cannot import name 'x' from 'mine'", False),
    ],
)
def test_an_error_names_the_file_that_hides_a_module(
    tmp_path: Path, file: str, said: str, named: bool
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    hint = hidden_module(f"Traceback ...\n{said}\n", [tmp_path])
    name = file.partition("/")[0].removesuffix(".py")
    assert hint == (f"{tmp_path / file} hides the module {name}: rename it" if named else None)
    (tmp_path / "torch-2.dist-info").mkdir()
    assert hidden_module(said, [tmp_path]) is None, "installed packages hide nothing"
