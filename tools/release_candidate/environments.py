"""Clean environments: pip installs a wheel or an sdist there, and no checkout is near."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.release_candidate.commands import run
from tools.release_candidate.outcomes import CheckFailed
from tools.release_candidate.source import Source
from tools.release_candidate.trials import Trial

ASK = "import json, sys; print(json.dumps([sys.executable, *sys.version_info[:3]]))"


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine."""

    path: str
    release: tuple[int, int, int]

    @property
    def minor(self) -> str:
        """Its version as the project names it, such as 3.11."""
        return f"{self.release[0]}.{self.release[1]}"

    @property
    def words(self) -> str:
        """Its whole version."""
        return ".".join(map(str, self.release))


def interpreter(name: str) -> Interpreter | None:
    """Return the Python of this path or name; None if there is none."""
    found = shutil.which(name)
    if found is None:
        return None
    done = subprocess.run([found, "-c", ASK], capture_output=True, text=True, check=False)
    if done.returncode:  # pyenv has a `python3.12` that only says how to choose one
        return None
    path, major, minor, micro = json.loads(done.stdout)
    return Interpreter(path, (major, minor, micro))


class Environment:
    """A virtual environment in a folder of its own, with a folder beside it to work in."""

    def __init__(self, folder: Path, source: Source, log: Path) -> None:
        self.folder, self._source, self._log = folder / "env", source, log
        self._work = folder / "work"

    @property
    def programs(self) -> Path:
        """Where its programs are."""
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.programs / "python"

    def create(self, tools: Path, python: Interpreter) -> None:
        """Make it anew; pip is the one that comes with virtualenv."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        self._work.mkdir(parents=True)
        make = [tools, "-m", "virtualenv", "--quiet", "--python", python.path, self.folder]
        run(make, self._log)

    def install(self, constraints: Path, *wanted: str) -> None:
        """Install with pip, and check that all requirements are met."""
        pip = [self.python, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "--quiet", "-c", constraints, *wanted], self._log)
        run([*pip, "check"], self._log)

    def try_all(self, trials: Sequence[Trial]) -> None:
        """Run the commands of trials, in order. CheckFailed for the first that does not hold."""
        for trial in trials:
            words = trial.command(self.programs, self._source.root)
            said = run(words, self._log, cwd=self._work, code=trial.code, environ=self._environ)
            pattern = trial.says.replace("VERSION", re.escape(self._source.version))
            if not re.search(pattern, said, re.MULTILINE):
                raise CheckFailed(f"{trial.name!r} does not say {pattern!r} (see {self._log.name})")

    def remove(self) -> None:
        """Delete it with everything in it."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)

    @property
    def _environ(self) -> dict[str, str]:
        # As in a shell where it is active: `canary` starts the `python` beside it.
        return {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder),
            "COLUMNS": "200",
        }
