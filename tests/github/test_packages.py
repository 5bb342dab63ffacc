"""Packages that cannot be had: left out on a user's machine, a failure where CI is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.github import packages
from tests.github.fixtures import left_out
from tests.github.packages import WEBHOOKS, Unavailable

NPM = """#!/bin/sh
if [ -n "$NPM_SAYS" ]; then echo "$NPM_SAYS" >&2; exit 1; fi
echo "not the package" > package.tgz
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for npm."""
    script = tmp_path / "bin" / "npm"
    script.parent.mkdir()
    script.write_text(NPM)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")


def test_another_package_than_the_pinned_one_is_not_opened(npm: None, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not the package that was pinned"):
        packages.content(WEBHOOKS, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("value", ["true", "1"])
def test_where_ci_is_set_nothing_is_left_out(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.fail.Exception, match="no npm"):
        left_out("there is no npm")
