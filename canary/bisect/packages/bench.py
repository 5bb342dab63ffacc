"""The workbench of packages: a fresh environment over this Python's packages for each set."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from packaging.version import Version

from canary.bisect.caches import keep_downloads, own_caches
from canary.bisect.model import CannotRun, State
from canary.bisect.packages.changes import installed, shown
from canary.bisect.packages.fit import Installed, conflicts_of, installed_in
from canary.bisect.packages.installer import Installer
from canary.bisect.packages.pins import Versions
from canary.campaign.environments import new_environment, packages_of
from canary.campaign.side import Side, run_child, undisturbed
from canary.errors import MachineError
from canary.machine.scratch import new_scratch

LABELS = ("releasenotes", "changelog", "changes", "whatsnew", "history", "releases")
"""Known labels of such addresses, the best first. Source: PyPA, Well-known Project URLs."""
LONGEST = 300

MOST_KEPT = 4
"""Environments besides both ends; one that is needed again later is made again."""
CACHES = ("PIP_CACHE_DIR", "UV_CACHE_DIR", "XDG_CACHE_HOME")
SEEN = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Contents:
    """What a state has installed besides what is the same everywhere."""

    label: str
    versions: Versions
    absent: Collection[str] = ()
    """Names that it must not see."""


@dataclass
class PackageBench:
    """Makes an environment for each set of packages; see `Workbench`."""

    contents: Callable[[State], Contents]
    names: Sequence[str]
    """Of the suspects."""
    code: Side
    """What runs, in which folder; its Python and label are replaced."""
    installer: Installer
    command: bool = False
    """The canary is a user's command."""
    _scratch: Path | None = field(default=None, init=False)
    _made: dict[State, Side] = field(default_factory=dict, init=False)
    """Built sides, the last used one at the end."""
    _here: Versions = field(default_factory=installed, init=False)
    _installed: dict[State, Installed] = field(default_factory=dict, init=False)

    @property
    def bad(self) -> State:
        """The state of the bad end: all suspects."""
        return (1 << len(self.names)) - 1

    def side(self, state: State) -> Side:
        """Return the canary with a set's packages; see `Workbench`."""
        if state in self._made:
            self._made[state] = self._made.pop(state)
            return self._made[state]
        others = [one for one in self._made if one not in (0, self.bad)]
        if state not in (0, self.bad) and len(others) >= MOST_KEPT:
            self._remove(others[0])
        try:
            side = self._build(state)
            self._refuse_new_conflicts(state)
        except BaseException:
            with undisturbed():
                self._remove(state)
            raise
        self._made[state] = side
        return side

    def installed(self, state: State) -> Installed:
        """Return the packages that a state sees, and what they require; builds it if needed.

        Raises:
            CannotRun: it cannot be built.
        """
        if state not in self._installed:
            self.side(state)
        return self._installed[state]

    def release_notes(self, state: State, name: str) -> str | None:
        """Return the address of a package's release notes, as a state has it installed.

        Raises:
            CannotRun: the state cannot be built.
        """
        self.side(state)
        folders = [str(packages_of(self._place(state) / "set-env")), *sys.path]
        return release_notes(next(iter(metadata.distributions(name=name, path=folders)), None))

    def label(self, state: State) -> str:
        """Return a set's name for people."""
        return self.contents(state).label

    def name(self, suspect: int) -> str:
        """Return a suspect's name."""
        return self.names[suspect]

    def close(self) -> None:
        """Remove all environments."""
        if self._scratch is not None:
            with undisturbed():
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
            self._made.clear()

    def _place(self, state: State) -> Path:
        if self._scratch is None:
            self._scratch = new_scratch("bisect")
        return self._scratch / f"{state:x}"

    def _build(self, state: State) -> Side:
        place, wanted = self._place(state), self.contents(state)
        place.mkdir(exist_ok=True)
        # What this Python has in the same version is not installed again.
        missing = {
            name: version
            for name, version in wanted.versions.items()
            if self._here.get(name) != version
        }
        hidden = {*missing, *wanted.absent} & self._here.keys()
        base = own_caches(place / "cache", self.code.environment, command=self.command)
        caches = {name: base[name] for name in CACHES if name in base}
        try:
            python, environment = new_environment("set", place, base, pip=False, without=hidden)
            self.installer.install(missing, python, {**self.installer.environ, **caches})
            keep_downloads(base, self.code.environment)
            self._require(wanted, python, environment)
        except MachineError as error:
            raise CannotRun(error.message.removeprefix("set: ")) from error
        folders = [str(packages_of(place / "set-env")), *sys.path]
        self._installed[state] = {
            name: needs
            for name, needs in installed_in(folders).items()
            if name not in wanted.absent
        }
        output = self.code.output_dir / "runs" / f"{state:x}"
        return replace(
            self.code,
            label=wanted.label,
            python=python,
            environment=environment,
            output_dir=output,
        )

    def _require(self, wanted: Contents, python: Path, environment: Mapping[str, str]) -> None:
        """Make sure that the environment's Python sees what the set says, and nothing else."""
        names = [*wanted.versions, *wanted.absent]
        code, out, err = run_child([str(python), "-c", SEEN, *names], self.code.folder, environment)
        if code:
            last = (err.strip().splitlines() or ["no output"])[-1]
            raise CannotRun(f"its Python does not start: {last}")
        for name, found in json.loads(out).items():
            version = wanted.versions.get(name)
            if (None if found is None else Version(found)) != version:
                raise CannotRun(
                    f"its Python sees {name} {found or 'not installed'}, wanted {shown(version)}"
                )

    def _refuse_new_conflicts(self, state: State) -> None:
        """Raise CannotRun if packages do not go together that do at both ends."""
        if state in (0, self.bad):
            return
        ends = conflicts_of(self.installed(0)) | conflicts_of(self.installed(self.bad))
        new = sorted(conflicts_of(self._installed[state]) - ends, key=str)
        if new:
            raise CannotRun(str(new[0]))

    def _remove(self, state: State) -> None:
        self._made.pop(state, None)
        if self._scratch is not None:
            shutil.rmtree(self._scratch / f"{state:x}", ignore_errors=True)


def release_notes(package: metadata.Distribution | None) -> str | None:
    """Return the address of a package's release notes, if its metadata names one.

    Only http and https, because people click on it.
    """
    found: dict[str, str] = {}
    for line in (package.metadata.get_all("Project-URL") or []) if package else []:
        label, _, address = str(line).partition(",")
        found.setdefault(re.sub(r"[\W_]", "", label).lower(), address.strip())
    return next((found[label] for label in LABELS if _can_show(found.get(label))), None)


def _can_show(address: str | None) -> bool:
    if not address or len(address) > LONGEST or not address.isprintable() or " " in address:
        return False
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
