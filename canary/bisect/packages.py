"""The packages of both ends, those that changed as candidates, and the versions of one of them.

A stranger may have written the list or record of an end. Only names and versions leave `read_pins`,
both validated by `packaging`: no option, URL or path of the file reaches an installer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from canary.baseline.entry import Entry
from canary.bisect.candidates import Candidates, Described, Step
from canary.bisect.search import State, bits
from canary.bisect.states import digest, installed, own_caches, set_side, shown
from canary.campaign.side import Side
from canary.errors import InputError, RecordError, UsageError, printable
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.runs import named_run
from canary.record.types import RunRecord

LARGEST = 16 << 20
"""Bytes of a list; large ones have some MiB of hashes."""
MOST_NAMED, LONGEST = 3, 80
"""Packages or lines that a text names, and characters of a line."""
NEVER = ("rlhf-canary", "pip", "uv")
"""What measures and installs is the same in every environment."""
HOW = "name a run's folder, pinned requirements, or a file with the output of `pip freeze`"
NOISE = re.compile(r"(^|\s)#.*$|\s--hash[=\s]\S+")
"""Comments and hashes of a line."""


@dataclass(frozen=True)
class Pins:
    """What is known of one end."""

    source: Path
    versions: Mapping[str, Version]
    """By canonical name."""
    left_out: str = ""
    """Which lines are not used."""
    record: RunRecord | None = None
    """It lists only what its training imported; a list has every package."""


@dataclass(frozen=True)
class Change:
    """One package that differs: a suspect."""

    name: str
    good: Version | None
    """None: it is not installed at this end."""
    bad: Version | None

    def __str__(self) -> str:
        return f"{self.name} {shown(self.good)} -> {shown(self.bad)}"


def read_pins(name: Path) -> Pins:
    """Read a run's record (folder, `metrics.json`, a run's name, or a history's file), or a list.

    Raises:
        InputError: it is missing, or pins no package.
        RecordError: it is a record that cannot be read.
    """
    path = named_run(str(name))
    if path.is_dir() or path.suffix == ".json":
        record = _stored(path) or load_record(path, write_back=False)
        named = record.env.get("packages") or {}
        return _pins(path, [(one, text) for one, text in named.items() if text], record)
    if path.suffix in (".lock", ".toml"):
        raise InputError(
            f"{path} has a format that bisect does not read",
            "write requirements: uv export --frozen -o FILE",
        )
    try:
        text = jsonio.content_of(path, LARGEST).decode("utf-8-sig", "replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", HOW) from error
    return _pins(path, _requirements(text))


def _stored(path: Path) -> RunRecord | None:
    """Return the record in a history's entry; None for another file."""
    try:
        return None if path.is_dir() else Entry(path).record()
    except RecordError:
        return None


def _requirements(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and version of the lines that count for this Python; no version: not pinned."""
    for raw in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = NOISE.sub("", raw).strip()
        try:
            found = Requirement(line)
        except InvalidRequirement:
            if line:
                yield line, ""
            continue
        pins = [part.version for part in found.specifier if part.operator == "=="]
        if found.marker is None or found.marker.evaluate({"extra": ""}):
            yield found.name, pins[0] if len(found.specifier) == len(pins) == 1 else ""


def _pins(path: Path, lines: Iterable[tuple[str, str]], record: RunRecord | None = None) -> Pins:
    versions: dict[str, Version] = {}
    unused: list[str] = []
    for written, text in lines:
        name = canonicalize_name(written)
        try:
            version = Version(text if len(text) <= LONGEST else "")
        except InvalidVersion:
            unused.append(printable(written)[:LONGEST])
            continue
        if name not in NEVER and versions.setdefault(name, version) != version:
            both = f"{versions[name]} and {version}"
            raise InputError(f"{path} pins {name} twice: {both}", "keep one of them")
    more = f" and {len(unused) - MOST_NAMED} more" if len(unused) > MOST_NAMED else ""
    told = f"left out, because they pin no release: {', '.join(unused[:MOST_NAMED])}{more}"
    if not versions:
        why = f"; {told}" if unused else ""
        raise InputError(f"{path} pins no package{why}", HOW)
    return Pins(path, versions, f"{path}: {told}" if unused else "", record)


def changes_between(good: Pins, bad: Pins) -> tuple[list[Change], dict[str, Version]]:
    """Return what differs between two ends, and what is the same but not in this Python.

    Raises:
        UsageError: they have the same packages.
    """
    mine = installed()
    changed: list[Change] = []
    fixed: dict[str, Version] = {}
    for name in sorted(good.versions.keys() | bad.versions.keys()):
        ends = good.versions.get(name), bad.versions.get(name)
        # A record lists only what was imported: what it lacks is not known.
        unknown = any(one.record is not None and name not in one.versions for one in (good, bad))
        held = ends[0] or ends[1]
        if ends[0] != ends[1] and not unknown:
            changed.append(Change(name, *ends))
        elif held is not None and mine.get(name) != held:
            fixed[name] = held
    if not changed:
        raise UsageError(
            f"{good.source} and {bad.source} have the same packages",
            "search the commits instead: canary bisect CONFIG --good A --bad B",
        )
    return changed, fixed


def releases_between(good: Version, bad: Version, known: Sequence[Version]) -> list[Version]:
    """Return the versions from the good to the bad end, both included, in the order of release.

    Pre-releases count only if an end is one. Builds such as `+cpu` count only if an end has the
    same: two builds of one version are one release. Nightly versions carry their date, so the
    order of versions is that of dates. `bad` may be the older one.
    """
    low, high = sorted((good, bad))
    pre = good.is_prerelease or bad.is_prerelease
    between: dict[str, Version] = {}
    for version in sorted(known):
        fits = (pre or not version.is_prerelease) and version.local in (good.local, bad.local)
        if low < version < high and fits:
            between.setdefault(version.public, version)
    inside = [one for public, one in between.items() if public not in (good.public, bad.public)]
    return [good, *(inside if good < bad else inside[::-1]), bad]


@dataclass
class PackageSets(Candidates):
    """The packages that changed. A state has some of them from the bad end."""

    changed: Sequence[Change]
    fixed: Mapping[str, Version]
    """Packages that every state has."""
    code: Side
    """What runs; a state replaces its Python."""
    command: bool
    """It is a user's command."""
    noun = "package"

    @property
    def count(self) -> int:
        return len(self.changed)

    def contents(self, state: State) -> dict[str, Version | None]:
        """Return what a state has installed; None: it must not see it."""
        varies = {
            change.name: change.bad if state >> place & 1 else change.good
            for place, change in enumerate(self.changed)
        }
        return {**self.fixed, **varies}

    def states(self, likely: State) -> Sequence[State]:
        return [1 << one for one in bits(likely)]

    def label(self, state: State) -> str:
        bad = [self.changed[one].name for one in bits(state)]
        if len(bad) in (0, self.count):
            return "bad packages" if bad else "good packages"
        more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
        return f"bad {', '.join(bad[:MOST_NAMED])}{more}"

    def step(self, suspect: int, good: set[State]) -> Step:
        return Step(0, 1 << suspect)

    def describe(self, suspect: int) -> Described:
        change = self.changed[suspect]
        return Described(str(change), facts_of(change))

    def build(self, state: State, place: Path) -> Side:
        side = replace(
            self.code,
            label=self.label(state),
            environment=own_caches(place / "cache", self.code.environment, command=self.command),
            output_dir=self.code.output_dir / digest(hex(state)),
        )
        return set_side(side, self.contents(state), place)


@dataclass
class PackageVersions(PackageSets):
    """The versions of one package, while all others stay."""

    versions: Sequence[Version | None]
    """From the good to the bad end; None: not installed."""
    change: Change
    held: State
    """The set that stays."""
    noun = "version"

    @property
    def count(self) -> int:
        return len(self.versions) - 1

    def contents(self, state: State) -> dict[str, Version | None]:
        return super().contents(self.held) | {self.change.name: self.versions[state.bit_count()]}

    def states(self, likely: State) -> Sequence[State]:
        return [(1 << count) - 1 for count in range(1, self.count)]

    def label(self, state: State) -> str:
        version = self.versions[state.bit_count()]
        return f"{self.change.name}=={version}" if version else f"no {self.change.name}"

    def step(self, suspect: int, good: set[State]) -> Step:
        return Step((1 << suspect) - 1, (2 << suspect) - 1)

    def describe(self, suspect: int) -> Described:
        name, (good, bad) = self.change.name, self.versions[suspect : suspect + 2]
        facts = {**facts_of(self.change), "first_bad": shown(bad), "last_good": shown(good)}
        return Described(f"{name} {shown(bad)}", facts, (f"last good: {name} {shown(good)}",))


def facts_of(change: Change) -> dict[str, Any]:
    """Return what programs read about a package."""
    return {"package": change.name, "good": shown(change.good), "bad": shown(change.bad)}
