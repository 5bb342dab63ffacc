"""The locks of the half that answers: whole, of the tested set, every package with its hashes."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.contract.test_image import ROOT, pins

EXTRAS = {"report": (), "page": ("report",), "prefetch": ("hub",)}
BESIDE = {"page": "report"}
"""Locks that are installed after another, and name nothing of it."""
PLATFORMS = [
    (python, system, machine)
    for python in ("3.11", "3.12", "3.13")
    for system, machine in (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))
]


def environment(python: str, system: str, machine: str) -> dict[str, str]:
    """What markers of requirements are held against on another machine."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_system": system,
        "platform_machine": machine,
        "sys_platform": system.lower(),
    }


def needed(wanted: list[str], there: dict[str, str]) -> set[str]:
    """Every package that is installed for these requirements, as the installed ones name theirs."""
    found: set[tuple[str, str]] = set()
    todo = [Requirement(text) for text in wanted]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for of, extra in found if of == name}:
            found.add((name, extra))
            named = (Requirement(text) for text in metadata.requires(name) or [])
            todo += [one for one in named if holds(one, there, extra)]
    return {name for name, _ in found}


def holds(requirement: Requirement, there: dict[str, str], extra: str) -> bool:
    marker = requirement.marker
    return marker is None or marker.evaluate({**there, "extra": extra})


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_holds_what_the_command_line_needs_at_the_tested_versions_and_no_more(
    lock: str,
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS[lock]:
        wanted += project["optional-dependencies"][extra]
    locked = pins(f"requirements/{lock}.lock.txt")
    there = pins(f"requirements/{BESIDE[lock]}.lock.txt") if lock in BESIDE else {}
    assert not there.keys() & locked.keys()
    for platform in PLATFORMS:
        found = needed(wanted, environment(*platform))
        assert found == locked.keys() | there.keys(), "run requirements/lock.sh"
    tested = pins("constraints.txt")
    assert locked == {name: tested[name] for name in locked}


@pytest.mark.parametrize("lock", EXTRAS)
def test_every_package_of_a_lock_has_its_hashes(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock.txt").read_text(encoding="utf-8")
    for paragraph in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in paragraph, paragraph.splitlines()[0]
