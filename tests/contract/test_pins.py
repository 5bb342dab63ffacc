"""Every pin of constraints.txt can be installed on the oldest Python that README promises."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PINS = re.findall(r"(?m)^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"))
OLDEST = ("3.11.0", "3.11.1", "3.11.2")
"""Debian 12 has 3.11.2."""


def test_the_oldest_python_is_the_promised_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"


@pytest.mark.parametrize("python", OLDEST)
def test_every_pin_admits_the_oldest_python(python: str) -> None:
    """Reads the packages that are installed here; `make docs` runs it on those of the site."""
    asked, refused = 0, []
    for name, version in PINS:
        try:
            said = metadata.metadata(name).json
        except metadata.PackageNotFoundError:
            continue
        if str(said["version"]).partition("+")[0] == version:
            asked += 1
            needed = str(said.get("requires_python", ""))
            if python not in SpecifierSet(needed):
                refused.append(f"{name}=={version} needs {needed}")
    assert refused == []
    assert asked > 20, "the tested set is not installed here"


def test_requirements_are_what_trains_in_the_tested_versions() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    said = [line for line in lines if not line.startswith("#")]
    assert said == ["-c constraints.txt", "torch", ".[train,report]"]
