"""Install exact releases into an environment with uv or pip, and ask pip which releases exist.

Only the user's environment and `--find-links` say where packages come from. Names and versions are
validated before they get here, and no shell runs. Downloads come from the user's cache; what is
built from source is built anew each time, because it depends on the packages around it.
"""

from __future__ import annotations

import importlib.util
import json
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
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from canary.bisect.model import CannotRun
from canary.bisect.packages.pins import Versions
from canary.campaign.side import run_child
from canary.errors import MachineError, UsageError, printable

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

    def install(self, versions: Versions, python: Path) -> None:
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
            if not pins or self._installs(pins, python, local, "--only-binary", ":all:") is None:
                continue
            for pin in pins:
                why = self._installs([pin], python, local, "--only-binary", ":all:")
                if why is not None:
                    why = self._installs([pin], python, local, NO_CACHE[self.uv is not None])
                if why is not None:
                    raise CannotRun(f"{pin} does not install: {why}")

    def _installs(
        self, pins: Sequence[str], python: Path, local: bool, *options: str
    ) -> str | None:
        """Install; return None, or why it failed."""
        if self.uv:
            command = [self.uv, "pip", "install", "--python", str(python)]
        else:
            command = [*self.pip, "--python", str(python), "install", "--ignore-installed"]
            command += ["--no-warn-script-location", "--disable-pip-version-check"]
        command += ["--no-deps", *self._places(local and "--no-index" in options), *options, *pins]
        code, out, err = run_child(command, Path.cwd(), self.environ)
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
