"""What differs between the packages of two ends, and what both of them need installed."""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from canary.bisect.packages.pins import Pins, Versions
from canary.errors import UsageError
from canary.machine.packages import installed_packages


@dataclass(frozen=True)
class Change:
    """One package that differs: a suspect."""

    name: str
    good: Version | None
    """None: it is not installed at this end."""
    bad: Version | None

    def at(self, *, bad: bool) -> Version | None:
        """Return its version at one end."""
        return self.bad if bad else self.good

    def __str__(self) -> str:
        return f"{self.name} {shown(self.good)} -> {shown(self.bad)}"


def shown(version: Version | None) -> str:
    """Return a version for people."""
    return "not installed" if version is None else str(version)


@dataclass(frozen=True)
class Changes:
    """The suspects, and what is the same at both ends but not in this Python."""

    changed: tuple[Change, ...]
    fixed: Versions
    notes: tuple[str, ...]


def changes_between(good: Pins, bad: Pins) -> Changes:
    """Return what differs between two ends.

    Raises:
        UsageError: they have the same packages.
    """
    notes = [f"{pins.source}: {text}" for pins in (good, bad) for text in pins.left_out]
    notes += _pythons(good, bad)
    here = installed()
    changed: list[Change] = []
    fixed: dict[str, Version] = {}
    unknown = 0
    for name in sorted(good.versions.keys() | bad.versions.keys()):
        at_good, at_bad = good.versions.get(name), bad.versions.get(name)
        known = all(pins.whole or name in pins.versions for pins in (good, bad))
        if at_good != at_bad and known:
            changed.append(Change(name, at_good, at_bad))
            continue
        unknown += at_good != at_bad
        held = at_good or at_bad
        assert held is not None
        if here.get(name) != held:
            fixed[name] = held
    if unknown:
        notes.append(
            f"{unknown} packages are in one list only, and a record lists only what was imported: "
            "all runs have them"
        )
    if not changed:
        raise UsageError(
            f"{good.source} and {bad.source} have the same packages",
            "search the commits instead: canary bisect CONFIG --good A --bad B",
        )
    return Changes(tuple(changed), fixed, tuple(notes))


def _pythons(good: Pins, bad: Pins) -> list[str]:
    here = platform.python_version()
    given = {pins.python for pins in (good, bad) if pins.python} - {here}
    if not given:
        return []
    ends = " and ".join(f"{pins.source} had {pins.python}" for pins in (good, bad) if pins.python)
    return [f"all runs use Python {here}, but {ends}; a change of Python cannot be searched"]


def installed() -> dict[str, Version]:
    """Return the packages of this Python that have a release of their own."""
    found: dict[str, Version] = {}
    for name, version in installed_packages().items():
        with contextlib.suppress(InvalidVersion):
            found[canonicalize_name(name)] = Version(version)
    return found
