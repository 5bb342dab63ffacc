"""Search the packages that changed, then the versions of each that is found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from canary.bisect.answer import Answered, left_behind
from canary.bisect.bisect import engines_of
from canary.bisect.journal import Journal
from canary.bisect.model import CannotRun, State
from canary.bisect.packages.bench import Contents, PackageBench
from canary.bisect.packages.changes import Change, Changes
from canary.bisect.packages.grounds import PackageGround, Sets, VersionGround
from canary.bisect.packages.installer import Installer
from canary.bisect.packages.stages import Stages
from canary.campaign.side import Side
from canary.errors import MachineError, UsageError

MOST_ROUNDS = 3
"""Searches for packages that show it independently of those found before."""


@dataclass(frozen=True)
class Culprit:
    """One package, or one of several that are needed together."""

    change: Change
    together: tuple[str, ...]
    """Names of the others without which it does not show."""
    versions: Answered | None
    """The search for its first bad version; None if it could not be searched."""
    why_not: str = ""
    """Why its versions were not searched."""


@dataclass
class PackageSearch:
    """The stages of one search over packages."""

    stages: Stages
    changes: Changes
    installer: Installer
    code: Side
    """What runs; see `PackageBench`."""
    command: bool
    culprits: list[Culprit]
    others: bool = False
    """More packages show it, which were not searched."""

    def run(self) -> None:
        """Search packages, and the versions of each that is found."""
        everything = (1 << len(self.changes.changed)) - 1
        found: State = 0
        others, rounds = True, 0
        while others and found != everything and rounds < MOST_ROUNDS:
            chosen, others = self._packages(Sets(self.changes, left=found), rounds)
            for place in _bits(chosen):
                self.culprits.append(self._culprit(place, chosen))
            found |= chosen
            rounds += 1
            others = others and bool(chosen)
        self.others = others and found != everything

    def _packages(self, sets: Sets, rounds: int) -> tuple[State, bool]:
        """Return the packages that show it, as bits of all changed ones, and whether others show it
        too."""
        if len(self.changes.changed) == 1:
            return 1, False
        title = f"package {rounds + 1}" if rounds else "package"
        bench, journal = self._bench(title, sets.contents, [str(one) for one in sets.suspects])
        searched = PackageGround(sets, bench, engines_of(self.stages.judge))
        try:
            answered = self.stages.find(title, searched.ground(), journal, searched.as_engines())
        except UsageError:
            if not rounds:
                raise
            return 0, False  # Nothing is worse without the packages that were found.
        search = searched.search
        if search is None or not (answered.found.decided or answered.found.answer.together):
            return 0, False
        chosen = sum(1 << one for one in answered.found.answer.suspects)
        return sets.whole(chosen), bool(search.others)

    def _culprit(self, place: int, chosen: State) -> Culprit:
        """Search the versions of one package; the others of `chosen` are bad meanwhile."""
        changed = self.changes.changed
        change = changed[place]
        rest = chosen & ~(1 << place)
        everything = (1 << len(changed)) - 1
        sets = Sets(self.changes, base=rest, left=everything & ~rest)
        together = tuple(changed[one].name for one in _bits(rest))
        title = f"version of {change.name}"
        ground = VersionGround(sets, change, self._releases(change))
        bench, journal = self._bench(title, ground.contents, ground.names)
        try:
            answered = self.stages.find(title, ground.ground(bench), journal)
        except (UsageError, MachineError) as error:
            if not self.stages.done:
                raise
            return Culprit(change, together, None, str(error))
        if answered.status == "found":
            suspect = answered.found.answer.suspects[0]
            with contextlib.suppress(CannotRun):
                address = bench.release_notes((1 << suspect + 1) - 1, change.name)
                ground.notes.update({suspect: address} if address else {})
                left_behind(answered, self.stages.here)
        return Culprit(change, together, answered)

    def _releases(self, change: Change) -> list[Version | None]:
        if change.good is None or change.bad is None:
            return [change.good, change.bad]
        pre = change.good.is_prerelease or change.bad.is_prerelease
        try:
            known = self.installer.releases(change.name, pre=pre)
        except CannotRun as why:
            self.stages.note(f"{why}; only both ends of it are compared")
            known = []
        found = releases_between(change.good, change.bad, known)
        after = len(found) - 1
        plural = "" if after == 1 else "s"
        self.stages.say(f"{change.name} has {after} version{plural} after {change.good}")
        return list(found)

    def _bench(
        self, title: str, contents: Callable[[State], Contents], names: Sequence[str]
    ) -> tuple[PackageBench, Journal]:
        fixed = sorted(f"{name}=={version}" for name, version in self.changes.fixed.items())
        journal = self.stages.journal(title, [*names, *fixed])
        code = replace(self.code, output_dir=self.stages.place(title))
        bench = PackageBench(contents, names, code, self.installer, self.command)
        self.stages.around.callback(bench.close)
        return bench, journal


def _bits(state: State) -> list[int]:
    return [place for place in range(state.bit_length()) if state >> place & 1]


def releases_between(good: Version, bad: Version, known: Sequence[Version]) -> list[Version]:
    """Return the versions from the good to the bad end, both included, in the order of release.

    Pre-releases count only if an end is one. Builds such as `+cpu` count only if an end has the
    same: two builds of one version are one release. Nightly versions carry
    their date, so the order of versions is that of dates.

    Args:
        good: version of the good end.
        bad: version of the bad end; it may be the older one.
        known: versions that can be installed here.
    """
    low, high = sorted((good, bad))
    pre = good.is_prerelease or bad.is_prerelease
    builds = {good.local, bad.local}
    between: dict[str, Version] = {}
    for version in sorted(known):
        if low < version < high and (pre or not version.is_prerelease) and version.local in builds:
            between.setdefault(version.public, version)
    ends = {good.public, bad.public}
    inside = [version for public, version in between.items() if public not in ends]
    return [good, *(inside if good < bad else inside[::-1]), bad]
