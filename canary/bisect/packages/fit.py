"""Which sets of packages go together, by what they say they require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from canary.bisect.model import State
from canary.bisect.packages.changes import Change


@dataclass(frozen=True)
class Needs:
    """An installed package and what it requires."""

    name: str
    version: Version
    requires: tuple[Requirement, ...]


Installed = Mapping[str, Needs]
"""By canonical name."""


@dataclass(frozen=True)
class Conflict:
    """A requirement that is not met."""

    who: str
    version: Version
    requirement: str
    other: str
    found: Version | None

    def __str__(self) -> str:
        found = f"{self.other} is {self.found}" if self.found else f"{self.other} is missing"
        return f"{self.who} {self.version} requires {self.requirement}, but {found}"


def installed_in(folders: Sequence[str | Path]) -> Installed:
    """Return the packages in some folders; the first folder that has one counts."""
    found: dict[str, Needs] = {}
    for package in metadata.distributions(path=[str(folder) for folder in folders]):
        name = canonicalize_name(package.metadata["Name"] or "")
        try:
            version = Version(package.version)
        except (InvalidVersion, TypeError):
            continue
        if name:
            found.setdefault(name, Needs(name, version, tuple(_requirements(package))))
    return found


def _requirements(package: metadata.Distribution) -> Iterator[Requirement]:
    for text in package.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def conflicts_of(installed: Installed) -> frozenset[Conflict]:
    """Return the requirements that are not met, as `pip check` does."""
    return frozenset(_conflicts(installed, installed.values()))


def _conflicts(installed: Installed, among: Iterable[Needs]) -> Iterator[Conflict]:
    for needs in among:
        for requirement in needs.requires:
            other = canonicalize_name(requirement.name)
            found = installed.get(other)
            if found is None or not requirement.specifier.contains(found.version, prereleases=True):
                yield Conflict(
                    needs.name,
                    needs.version,
                    f"{requirement.name}{requirement.specifier}",
                    other,
                    found.version if found else None,
                )


@dataclass(frozen=True)
class Fit:
    """Which subsets of the changed packages go together, known from both ends."""

    changed: tuple[Change, ...]
    good: Installed
    bad: Installed

    def installed(self, state: State) -> Installed:
        """Return what a state has installed."""
        names = {change.name for i, change in enumerate(self.changed) if state >> i & 1}
        found = {name: needs for name, needs in self.good.items() if name not in names}
        return found | {name: needs for name, needs in self.bad.items() if name in names}

    @cached_property
    def _place(self) -> dict[str, int]:
        return {change.name: place for place, change in enumerate(self.changed)}

    @cached_property
    def _ends(self) -> frozenset[Conflict]:
        return conflicts_of(self.good) | conflicts_of(self.bad)

    @cached_property
    def _involved(self) -> frozenset[str]:
        """Packages that changed, or require one that did."""
        everything = [*self.good.values(), *self.bad.values()]
        return frozenset(self._place) | {
            needs.name
            for needs in everything
            if any(canonicalize_name(one.name) in self._place for one in needs.requires)
        }

    def conflicts(self, state: State) -> list[Conflict]:
        """Return what is not met in a state, but is at both ends."""
        installed = self.installed(state)
        among = [needs for name, needs in installed.items() if name in self._involved]
        return sorted(
            (one for one in _conflicts(installed, among) if one not in self._ends), key=str
        )

    def repaired(self, state: State) -> State | None:
        """Return a state like this one whose packages go together; None if none was found.

        Where a requirement is not met, the required package moves to the end of the one that
        requires it: there both went together.
        """
        for _ in range(2 * len(self.changed)):
            conflicts = self.conflicts(state)
            if not conflicts:
                return state
            flipped = state
            for conflict in conflicts:
                flipped = self._moved(flipped, conflict)
            if flipped == state:
                return None
            state = flipped
        return None

    def _moved(self, state: State, conflict: Conflict) -> State:
        who, other = self._place.get(conflict.who), self._place.get(conflict.other)
        if other is None:
            return state
        if who is None:  # the same at both ends: go back to where it was met
            return state ^ 1 << other
        return state | 1 << other if state >> who & 1 else state & ~(1 << other)

    def order(self) -> list[int]:
        """Return the suspects so that those which require each other are neighbours."""
        left = list(range(len(self.changed)))
        found: list[int] = []
        while left:
            stack = [left[0]]
            while stack:
                one = stack.pop()
                if one in left:
                    left.remove(one)
                    found.append(one)
                    stack += self._near(one)
        return found

    def _near(self, suspect: int) -> list[int]:
        name = self.changed[suspect].name
        near: set[str] = set()
        for end in (self.good, self.bad):
            for needs in filter(None, [end.get(name)]):
                near |= {canonicalize_name(one.name) for one in needs.requires}
            near |= {
                needs.name
                for needs in (end.get(change.name) for change in self.changed)
                if needs and any(canonicalize_name(one.name) == name for one in needs.requires)
            }
        return sorted((self._place[one] for one in near if one in self._place), reverse=True)
