"""The commit that a candidate is made of: its files, and what they say of the project."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from tools.release_candidate.outcomes import CheckFailed

VERSION = re.compile(r'(?m)^__version__ = "(.*)"$')
PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")


@dataclass(frozen=True)
class Source:
    """The files of one commit, below `root`, without git and without other files."""

    root: Path
    commit: str
    committed_s: int
    """Time of the commit, in seconds since 1970."""
    left_out: int
    """Files of the checkout that differ from the commit."""

    @property
    def version(self) -> str:
        """The version in canary/__init__.py."""
        text = (self.root / "canary" / "__init__.py").read_text(encoding="utf-8")
        found = VERSION.search(text)
        if found is None:
            raise CheckFailed("canary/__init__.py has no __version__")
        return found[1]

    @property
    def project(self) -> dict[str, Any]:
        """The table `project` of pyproject.toml."""
        text = (self.root / "pyproject.toml").read_text(encoding="utf-8")
        table: dict[str, Any] = tomllib.loads(text)["project"]
        return table

    @property
    def pythons(self) -> list[str]:
        """Versions of Python that the project names, such as 3.11."""
        names = "\n".join(self.project.get("classifiers", ()))
        return PYTHON.findall(names)

    @property
    def package(self) -> dict[str, bytes]:
        """Path and content of each file of the package, such as canary/templates/report.css."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in _walk(self.root / "canary")
        }


def export(repository: Path, folder: Path) -> Source:
    """Write the files of the repository's HEAD into a folder."""
    packed = _git(repository, "archive", "--format=tar", "HEAD")
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder)  # written by git itself, one line above
    return Source(
        folder,
        _git(repository, "rev-parse", "HEAD").decode().strip(),
        int(_git(repository, "show", "-s", "--format=%ct", "HEAD")),
        len(_git(repository, "status", "--porcelain").splitlines()),
    )


def _walk(folder: Path) -> list[Path]:
    """All files below a folder; canary/templates is a link, which is followed."""
    found: list[Path] = []
    for entry in sorted(folder.iterdir()):
        found += _walk(entry) if entry.is_dir() else [entry]
    return found


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], check=False, capture_output=True
    )
    if done.returncode:
        raise CheckFailed(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
