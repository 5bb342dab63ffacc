"""What is done in one place of the package is done in no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "canary"


@pytest.mark.parametrize(
    ("what", "place"),
    [
        (r"\bdifflib\b", "errors.py"),
        (r"\[\s*\"git\"", "machine/git.py"),
        (r"copy_\(.*non_blocking=True", "training/collectors/scalars.py"),
        (r"pass\(word", "config/setting_names.py"),
    ],
)
def test_there_is_one_of_it(what: str, place: str) -> None:
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(what, path.read_text(encoding="utf-8"))
    ]
    assert found == [place]
