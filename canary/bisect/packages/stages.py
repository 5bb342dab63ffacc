"""`canary bisect --packages`: first which package made it worse, then which version of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from canary import __version__
from canary.bisect.answer import Answered, left_behind
from canary.bisect.bench import left_scratch
from canary.bisect.bisect import DIGITS, engines_of
from canary.bisect.finding import Engines, Ground, Wish, find
from canary.bisect.journal import Journal, digest
from canary.bisect.judging import Judge
from canary.bisect.launches import Launches
from canary.bisect.model import CannotRun, State
from canary.bisect.packages.bench import Contents, PackageBench
from canary.bisect.packages.changes import Change, Changes, changes_between
from canary.bisect.packages.grounds import PackageGround, Sets, VersionGround
from canary.bisect.packages.installer import Installer, installer_for
from canary.bisect.packages.pins import read_pins
from canary.bisect.packages.recorded_config import recorded_config
from canary.bisect.packages.releases import releases_between
from canary.bisect.packages.request import PackagesRequest
from canary.campaign.noise_model import Measured
from canary.campaign.side import Side
from canary.config.load import load_config
from canary.config.output import OUTPUT_DIR
from canary.config.samples import shipped
from canary.errors import MachineError, UsageError
from canary.machine.packages import package_versions
from canary.record import jsonio
from canary.runner.display.progress import CampaignPanel
from canary.runner.warm import warm_starts

MOST_ROUNDS = 3
"""Searches for packages that show it independently of those found before."""
MOST_NAMED = 6
"""Changed packages in the first lines."""


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


@dataclass(frozen=True)
class PackagesAnswered:
    """The result of all stages."""

    folder: Path
    stages: tuple[tuple[str, Answered], ...]
    """Title and result of each search, in their order."""
    culprits: tuple[Culprit, ...]
    others: bool = False
    """More packages show it, which were not searched."""
    notes: tuple[str, ...] = ()


@warm_starts()
def run_packages(
    request: PackagesRequest, say: Callable[[str], None], panel: CampaignPanel | None = None
) -> PackagesAnswered:
    """Find the package and the version that made it worse.

    Raises:
        UsageError: the request, a list or the config is invalid, or nothing is worse.
        MachineError: an end cannot be installed or cannot run.
    """
    good, bad = read_pins(request.good), read_pins(request.bad)
    changes = changes_between(good, bad)
    here = Path.cwd().resolve()
    if request.config is None:
        text = recorded_config(good, bad)
        folder = _folder(request, changes, text, here)
        config = _written(folder, text)
    else:
        config = _config_of(request, here)
        folder = _folder(request, changes, str(config), here)
    loaded = load_config(config, request.settings).config
    for note in changes.notes:
        say(f"note: {note}")
    say(f"{len(changes.changed)} packages differ: {_named(changes)}")
    command = loaded.training_type in ("exec", "custom")
    code = Side(
        "", "", config, here, Path(sys.executable), dict(os.environ), folder, request.settings
    )
    with contextlib.ExitStack() as around:
        tools = Path(around.enter_context(tempfile.TemporaryDirectory(prefix="canary-tools-")))
        installer = installer_for(request.find_links, os.environ, tools)
        search = _Search(request, changes, installer, code, command, say, panel, around)
        try:
            return search.all()
        except KeyboardInterrupt:
            say(f"to continue: {request.typed}")
            raise


@dataclass
class _Search:
    """The stages of one bisect over packages."""

    request: PackagesRequest
    changes: Changes
    installer: Installer
    code: Side
    command: bool
    say: Callable[[str], None]
    panel: CampaignPanel | None
    around: contextlib.ExitStack
    stages: list[tuple[str, Answered]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def all(self) -> PackagesAnswered:
        """Search packages, and the versions of each that is found."""
        everything = (1 << len(self.changes.changed)) - 1
        culprits: list[Culprit] = []
        found: State = 0
        others = True
        while others and found != everything and self._rounds() < MOST_ROUNDS:
            sets = Sets(self.changes, left=found)
            chosen, others = self._packages(sets)
            if not chosen:
                break
            for place in _bits(chosen):
                culprits.append(self._culprit(place, chosen, found))
            found |= chosen
        return PackagesAnswered(
            self.code.output_dir,
            tuple(self.stages),
            tuple(culprits),
            bool(others and culprits and found != everything),
            (*self.changes.notes, *self.notes),
        )

    def _rounds(self) -> int:
        return sum(title.startswith("package") for title, _ in self.stages)

    def _packages(self, sets: Sets) -> tuple[State, bool]:
        """Return the packages that show it, as bits of all changed ones, and whether others show it
        too."""
        if len(sets.suspects) == 1:
            return sets.whole(1), False
        title = "package" if not sets.left else f"package {self._rounds() + 1}"
        names = [str(change) for change in sets.suspects]
        bench, journal = self._bench(title, sets.contents, names)
        searched = PackageGround(sets, bench, engines_of(self._judge))
        try:
            answered = self._find(title, searched.ground(), bench, journal, searched.as_engines())
        except UsageError:
            if not sets.left:
                raise
            return 0, False  # Nothing is worse without the packages that were found.
        search = searched.search
        if search is None or not (answered.found.decided or search.together):
            return 0, False
        chosen = sum(1 << one for one in answered.found.answer.suspects)
        return sets.whole(chosen), bool(search.others)

    def _culprit(self, place: int, chosen: State, found: State) -> Culprit:
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
            answered = self._find(title, ground.ground(bench), bench, journal, None)
        except (UsageError, MachineError) as error:
            if not self.stages:
                raise
            return Culprit(change, together, None, str(error))
        if answered.status == "found":
            suspect = answered.found.answer.suspects[0]
            with contextlib.suppress(CannotRun):
                address = bench.release_notes((1 << suspect + 1) - 1, change.name)
                ground.notes.update({suspect: address} if address else {})
                left_behind(answered, self.code.folder)
        return Culprit(change, together, answered)

    def _releases(self, change: Change) -> list[Version | None]:
        if change.good is None or change.bad is None:
            return [change.good, change.bad]
        pre = change.good.is_prerelease or change.bad.is_prerelease
        try:
            known = self.installer.releases(change.name, pre=pre)
        except CannotRun as why:
            self._note(f"{why}; only both ends of it are compared")
            known = []
        found = releases_between(change.good, change.bad, known)
        self.say(f"{change.name} has {len(found) - 1} versions after {change.good}")
        return list(found)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.say(f"note: {text}")

    def _bench(
        self, title: str, contents: Callable[[State], Contents], names: Sequence[str]
    ) -> tuple[PackageBench, Journal]:
        folder = self.code.output_dir / title.replace(" ", "-")
        journal = Journal.open(folder, self._asked(title, names))
        self.around.callback(journal.close)
        for left in filter(None, map(left_scratch, journal.left)):
            shutil.rmtree(left, ignore_errors=True)
        code = replace(self.code, output_dir=folder)
        bench = PackageBench(
            contents, names, code, self.installer, journal.note_scratch, self.command
        )
        self.around.callback(bench.close)
        return bench, journal

    def _asked(self, title: str, names: Sequence[str]) -> dict[str, str]:
        """Return what has to be equal to continue."""
        return {
            "list of packages": digest([title, *names, *map(str, self.changes.fixed.items())]),
            "--check": self.request.wish.check or "",
            "--set": jsonio.dumps(self.request.settings),
            "config": digest(_text_of(self.code.config)),
            "set of packages": digest(package_versions()),
            "version of rlhf-canary": __version__,
        }

    def _find(
        self,
        title: str,
        ground: Ground,
        bench: PackageBench,
        journal: Journal,
        engines: Engines | None,
    ) -> Answered:
        self.say(f"searching the {title}: {len(bench.names)} {ground.noun}s")
        found = find(
            ground,
            self._wish(),
            engines or engines_of(self._judge),
            Launches(bench, journal, self.panel),
            self._judge,
            self.say,
        )
        names = {"good": str(self.request.good), "bad": str(self.request.bad)}
        answered = Answered(found, ground, journal, names, str(self.code.config))
        answered = replace(answered, page=left_behind(answered, self.code.folder))
        self.stages.append((title, answered))
        return answered

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.code.folder, Measured(self.say, None, self.code.folder))

    def _wish(self) -> Wish:
        """Return what to look for next: the check of the first stage, in the time that is left."""
        wish = self.request.wish
        if self.stages:
            wish = replace(wish, check=self.stages[0][1].found.check)
        if wish.budget_s is None:
            return wish
        spent = sum(answered.found.seconds for _, answered in self.stages)
        return replace(wish, budget_s=max(1.0, wish.budget_s - spent))


def _bits(state: State) -> list[int]:
    return [place for place in range(state.bit_length()) if state >> place & 1]


def _named(changes: Changes) -> str:
    shown = ", ".join(str(change) for change in changes.changed[:MOST_NAMED])
    more = len(changes.changed) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _config_of(request: PackagesRequest, here: Path) -> Path:
    assert request.config is not None
    given = (here / request.config).resolve()
    if given.is_file():
        return given
    if shipped(request.config) is not None:
        return request.config
    raise UsageError(f"no config at {request.config}", "write one with: canary init-config")


def _text_of(config: Path) -> str:
    return config.read_text("utf-8", "replace") if config.is_file() else str(config)


def _folder(request: PackagesRequest, changes: Changes, config: str, here: Path) -> Path:
    """Return the named output folder, or the one that the same arguments had before."""
    if request.output_dir is not None:
        return (here / request.output_dir).absolute()
    arguments = [request.wish.check or "", *request.settings, config]
    same = digest([*arguments, *map(str, changes.changed)])[:DIGITS]
    root = (here / OUTPUT_DIR).absolute()
    earlier = sorted(root.glob(f"bisect-*-{same}"))
    return earlier[-1] if earlier else root / f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{same}"


def _written(folder: Path, text: str) -> Path:
    """Write the config of a record into the output folder."""
    path = folder / "config.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(path, text)
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror or error}", "choose another folder with -o"
        ) from error
    return path
