"""Install exact releases into an environment with uv or pip, and ask pip which releases exist.

Only the user's environment and `--find-links` say where packages come from. Names and versions are
validated before they get here, and no shell runs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from canary.bisect.model import CannotRun
from canary.bisect.packages.pins import Versions
from canary.campaign.environments import new_environment
from canary.campaign.side import run_child
from canary.errors import UsageError, printable

AS_PIP = {
    "UV_INDEX_URL": "PIP_INDEX_URL",
    "UV_DEFAULT_INDEX": "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL": "PIP_EXTRA_INDEX_URL",
    "UV_INDEX": "PIP_EXTRA_INDEX_URL",
    "UV_FIND_LINKS": "PIP_FIND_LINKS",
}
"""Where uv looks for packages, in pip's words."""
INDEX_SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index")
ELSEWHERE = ("TARGET", "PREFIX", "ROOT", "USER", "EDITABLE", "REQUIREMENT", "CONSTRAINT", "PYTHON")
"""pip options that would install into another place, or something else."""
LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)
NAMED_INDEX = re.compile(r"^[\w.-]+=(?=\w+://)")
"""uv may give an index a name: `name=https://...`."""
LONGEST_REASON = 300


@dataclass(frozen=True)
class Installer:
    """How packages are installed on this machine."""

    pip: tuple[str, ...]
    """The command of a pip that lists releases."""
    uv: str | None
    """The path of uv, if it installs."""
    environ: Mapping[str, str]
    find_links: Path | None = None
    at_hand: Mapping[str, frozenset[Version]] = field(default_factory=dict)
    """The releases in the folder `find_links`."""

    def install(self, versions: Versions, python: Path, environ: Mapping[str, str]) -> None:
        """Install exact releases, without their dependencies, into the environment of a Python.

        Raises:
            CannotRun: a release does not exist for this Python, or does not build.
        """
        for local in (True, False):
            pins = [
                f"{name}=={version}"
                for name, version in versions.items()
                if (version in self.at_hand.get(name, ())) == local
            ]
            if not pins or self._installed(pins, python, environ, local) is None:
                continue
            for pin in pins:
                why = self._installed([pin], python, environ, local)
                if why is not None:
                    raise CannotRun(f"{pin} does not install: {why}")

    def _installed(
        self, pins: Sequence[str], python: Path, environ: Mapping[str, str], local: bool
    ) -> str | None:
        """Install some releases; return None, or why they do not install."""
        if self.uv:
            command = [self.uv, "pip", "install", "--python", str(python)]
        else:
            command = [*self.pip, "--python", str(python), "install", "--ignore-installed"]
            command += ["--no-warn-script-location", "--disable-pip-version-check"]
        command += ["--no-deps", *self._places(local), *pins]
        code, out, err = run_child(command, Path.cwd(), environ)
        return None if code == 0 else _reason(err or out)

    def _places(self, no_index: bool) -> list[str]:
        places = ["--find-links", str(self.find_links)] if self.find_links else []
        return [*places, *(["--no-index"] if no_index else [])]

    def releases(self, name: str, *, pre: bool) -> list[Version]:
        """Return the releases of a package that fit this Python, in the order of their versions.

        Raises:
            CannotRun: pip cannot tell.
        """
        command = [*self.pip, "index", "versions", name, *self._places(name in self.at_hand)]
        command += ["--disable-pip-version-check", *(["--pre"] if pre else [])]
        code, out, err = run_child(command, Path.cwd(), self.environ)
        listed = LISTED.search(out)
        if code or listed is None:
            raise CannotRun(f"the releases of {name} are not known: {_reason(err or out)}")
        found = []
        for text in listed[1].split(","):
            try:
                found.append(Version(text.strip()))
            except InvalidVersion:
                continue
        return sorted(found)


def _reason(output: str) -> str:
    """Return the line of an installer's output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    chosen = (errors or lines or ["no output"])[-1]
    return printable(chosen)[:LONGEST_REASON]


def installer_for(find_links: Path | None, environ: Mapping[str, str], scratch: Path) -> Installer:
    """Return how packages are installed here: uv if it is on the PATH, else pip.

    If only pip is told where packages come from, pip installs even if uv is there.

    Raises:
        UsageError: the folder does not exist.
        MachineError: there is no pip, and none can be made.
    """
    if find_links is not None and not find_links.is_dir():
        raise UsageError(f"--find-links {find_links} is not a folder")
    environ = _without_targets(environ)
    uv = shutil.which("uv", path=environ.get("PATH"))
    pip = _pip(scratch)
    if uv and not any(environ.get(name) for name in AS_PIP) and _pip_has_indexes(pip, environ):
        uv = None
    if uv:
        environ = {**_in_pip_words(environ), **environ}
    folder = find_links.resolve() if find_links else None
    return Installer(pip, uv, environ, folder, _at_hand(folder) if folder else {})


def _without_targets(environ: Mapping[str, str]) -> dict[str, str]:
    refused = {f"PIP_{name}" for name in ELSEWHERE} | {f"UV_{name}" for name in ELSEWHERE}
    return {name: value for name, value in environ.items() if name not in refused}


def _in_pip_words(environ: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, pip_name in AS_PIP.items():
        urls = [NAMED_INDEX.sub("", word) for word in environ.get(name, "").split()]
        if urls and pip_name == "PIP_INDEX_URL":
            found[pip_name] = urls[0]
        elif urls:
            found[pip_name] = " ".join(filter(None, [found.get(pip_name), *urls]))
    return found


def _pip(scratch: Path) -> tuple[str, ...]:
    """Return the command of a pip: that of this Python, else one in an environment of its own."""
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-m", "pip")
    python, _ = new_environment("pip", scratch, os.environ)
    return (str(python), "-m", "pip")


def _pip_has_indexes(pip: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether pip's variables or files say where packages come from."""
    code, out, _ = run_child([*pip, "config", "list"], Path.cwd(), environ)
    keys = {line.partition("=")[0].rpartition(".")[2] for line in out.splitlines()}
    return code == 0 and bool(keys & set(INDEX_SETTINGS))


def _at_hand(folder: Path) -> dict[str, frozenset[Version]]:
    found: dict[str, set[Version]] = {}
    for file in folder.iterdir():
        try:
            if file.suffix == ".whl":
                name, version, *_ = parse_wheel_filename(file.name)
            else:
                name, version = parse_sdist_filename(file.name)
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        found.setdefault(name, set()).add(version)
    return {name: frozenset(versions) for name, versions in found.items()}
