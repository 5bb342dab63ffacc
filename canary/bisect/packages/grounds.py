"""What is searched: the packages that changed, then the versions of one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from packaging.version import Version

from canary.bisect.finding import Described, Engines, Found, Ground, Step
from canary.bisect.model import Search, Seen, Space, State
from canary.bisect.packages.bench import Contents, PackageBench
from canary.bisect.packages.changes import Change, Changes, shown
from canary.bisect.packages.fit import Fit
from canary.bisect.packages.minimal import SetSearch
from canary.bisect.packages.space import PackageSpace, VersionSpace
from canary.compare.report import Comparison
from canary.machine.packages import PACKAGES

TRAINS = 3.0
"""Weight of a package that can change a training; 1 for any other."""
MOST_NAMED = 3
"""Packages that a label names."""
OTHERS = "without it the bad packages still show it, so another package shows it too"


@dataclass(frozen=True)
class Sets:
    """What each set of changed packages has installed."""

    changes: Changes
    base: State = 0
    """Changed packages that are always those of the bad end."""
    left: State = 0
    """Changed packages that are always those of the good end."""

    @cached_property
    def suspects(self) -> tuple[Change, ...]:
        """The packages that vary."""
        held = self.base | self.left
        return tuple(c for place, c in enumerate(self.changes.changed) if not held >> place & 1)

    @cached_property
    def _places(self) -> list[int]:
        held = self.base | self.left
        return [place for place in range(len(self.changes.changed)) if not held >> place & 1]

    def whole(self, state: State) -> State:
        """Return a state of the suspects as a state of all changed packages."""
        return self.base | sum(1 << p for i, p in enumerate(self._places) if state >> i & 1)

    def contents(self, state: State) -> Contents:
        """Return what a state of the suspects has installed."""
        whole = self.whole(state)
        versions: dict[str, Version] = dict(self.changes.fixed)
        absent = []
        for place, change in enumerate(self.changes.changed):
            version = change.at(bad=bool(whole >> place & 1))
            if version is None:
                absent.append(change.name)
            else:
                versions[change.name] = version
        return Contents(self._label(state), versions, absent)

    def _label(self, state: State) -> str:
        full = (1 << len(self.suspects)) - 1
        if state in (0, full):
            return "bad packages" if state else "good packages"
        bad = [one.name for i, one in enumerate(self.suspects) if state >> i & 1]
        good = [one.name for i, one in enumerate(self.suspects) if not state >> i & 1]
        if len(bad) <= MOST_NAMED:
            return f"bad {', '.join(bad)}"
        if len(good) <= MOST_NAMED:
            return f"all bad but {', '.join(good)}"
        return f"{len(bad)} bad of {len(self.suspects)} ({bad[0]} ... {bad[-1]}, set {state:x})"


@dataclass
class PackageGround:
    """The search for a package, or for several that are needed together."""

    sets: Sets
    bench: PackageBench
    engines: Engines
    search: SetSearch | None = field(default=None, init=False)
    """The search, once it began."""

    @cached_property
    def fit(self) -> Fit:
        """Which sets go together; needs both ends built."""
        ends = self.bench.installed(0), self.bench.installed(self.bench.bad)
        return Fit(self.sets.suspects, *ends)

    def ground(self) -> Ground:
        """Return what the loop needs."""
        return Ground(
            self.bench, self.bench.bad, self._space, self._step, self._describe, noun="package"
        )

    def as_engines(self) -> Engines:
        """Return searches that also find several packages."""

        def exact(space: Space) -> Search:
            return self._set_search(self.engines.exact, space)

        def noisy(space: Space, check: str, effect: float) -> Search:
            return self._set_search(lambda one: self.engines.noisy(one, check, effect), space)

        return Engines(exact, noisy)

    def _set_search(self, make: Callable[[Space], Search], space: Space) -> SetSearch:
        self.search = SetSearch(
            make, space, lambda state: not self.fit.conflicts(state), self.fit.order()
        )
        return self.search

    def _space(self, ends: Comparison) -> Space:
        weights = [TRAINS if one.name in PACKAGES else 1.0 for one in self.sets.suspects]
        prior = [weight / sum(weights) for weight in weights]
        return PackageSpace(prior, self.fit.order(), self.fit.repaired)

    def _step(self, suspect: int, seen: Sequence[Seen]) -> Step:
        alone, full = 1 << suspect, self.bench.bad
        note = OTHERS if self.search is not None and self.search.others else ""
        if self.fit.conflicts(alone):
            return Step(full & ~alone, full, note)
        return Step(0, alone, note)

    def _describe(self, suspect: int, found: Found | None) -> Described:
        change = self.sets.suspects[suspect]
        facts = {"package": change.name, "good": _text(change.good), "bad": _text(change.bad)}
        return Described(str(change), (), facts)


def _text(version: Version | None) -> str | None:
    return None if version is None else str(version)


@dataclass
class VersionGround:
    """The search for a version of one package; all other packages stay."""

    sets: Sets
    """The other packages: those of `base` are bad, the others good."""
    change: Change
    versions: Sequence[Version | None]
    """From the good to the bad end; None: not installed."""
    notes: dict[int, str] = field(default_factory=dict)
    """Address of the release notes of each suspect, if known."""

    def contents(self, state: State) -> Contents:
        """Return what a version's state has installed."""
        version = self.versions[state.bit_count()]
        held = self.sets.contents(0)
        versions = {name: one for name, one in held.versions.items() if name != self.change.name}
        absent = [name for name in held.absent if name != self.change.name]
        if version is None:
            return Contents(f"no {self.change.name}", versions, [*absent, self.change.name])
        label = f"{self.change.name}=={version}"
        return Contents(label, {**versions, self.change.name: version}, absent)

    @property
    def names(self) -> list[str]:
        """The suspects: each version after the first."""
        return [f"{self.change.name} {shown(version)}" for version in self.versions[1:]]

    def ground(self, bench: PackageBench) -> Ground:
        """Return what the loop needs."""
        return Ground(bench, bench.bad, self._space, self._step, self.describe, noun="version")

    def _space(self, ends: Comparison) -> Space:
        count = len(self.versions) - 1
        return VersionSpace([1.0 / count] * count)

    def _step(self, suspect: int, seen: Sequence[Seen]) -> Step:
        skipped = {one.state for one in seen if one.outcome == "skip"}
        before = (1 << suspect) - 1
        while before in skipped:
            before >>= 1
        return Step(before, (1 << suspect + 1) - 1)

    def describe(self, suspect: int, found: Found | None) -> Described:
        """Describe the first bad version."""
        good, bad = self.versions[suspect], self.versions[suspect + 1]
        lines = [f"last good: {self.change.name} {shown(good)}"]
        facts = {
            "package": self.change.name,
            "first_bad": _text(bad),
            "last_good": _text(good),
            "release_notes": self.notes.get(suspect),
        }
        if self.notes.get(suspect):
            lines.append(f"release notes: {self.notes[suspect]}")
        return Described(f"{self.change.name} {shown(bad)}", tuple(lines), facts)
