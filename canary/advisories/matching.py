"""Which advisories apply: the version is in the range, and the condition may hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from canary.advisories.advisory import Advisory
from canary.advisories.condition import Known, in_range, unknown_tests


@dataclass(frozen=True)
class Match:
    """An advisory that applies, for sure or under a condition."""

    advisory: Advisory
    version: str
    """The installed version."""
    unknown: tuple[str, ...] = ()
    """Tests of its condition that nobody can decide, in words; empty if it applies for sure."""

    @property
    def only_if(self) -> str:
        """The open part of its condition in words; empty if it applies for sure."""
        return " and ".join(self.unknown)


def matches(listed: Iterable[Advisory], known: Known) -> tuple[Match, ...]:
    """Return those that apply, the sure ones first."""
    return tuple(sorted(_found(listed, known), key=lambda one: bool(one.unknown)))


def _found(listed: Iterable[Advisory], known: Known) -> Iterator[Match]:
    for one in listed:
        version = known.packages.get(one.package)
        if version is None or not in_range(version, one.versions):
            continue
        unknown = unknown_tests(one.condition, known)
        if unknown is not None:
            yield Match(one, version, (*unknown, *([one.when] if one.when else [])))
