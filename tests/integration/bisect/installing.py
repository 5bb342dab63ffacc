"""Installs sets of the small packages in folders of their own, and trains with them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.bisect.commands import ENVIRONMENT
from tests.integration.bisect.packages import Plan, Versions, build_packages, write_project
from tests.integration.conftest import Finished, canary


def install(target: Path, links: Path, versions: Versions) -> subprocess.CompletedProcess[str]:
    """Installs versions into a folder, from a folder of wheels."""
    words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target)]
    words += ["--find-links", str(links), *(f"{name}=={had}" for name, had in versions.items())]
    return subprocess.run(
        words, capture_output=True, text=True, env=os.environ | ENVIRONMENT, check=False
    )


@dataclass
class Shelf:
    """Wheels, a training, and the sets of packages that it ran with."""

    root: Path
    plan: Plan
    installed: dict[tuple[tuple[str, str], ...], Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.links = build_packages(self.root / "wheels", self.plan)
        self.project = write_project(self.root / "project")

    def with_packages(self, versions: Versions) -> Path:
        """The folder that holds a set."""
        key = tuple(sorted(versions.items()))
        if key not in self.installed:
            target = self.root / f"set{len(self.installed)}"
            done = install(target, self.links, versions)
            assert done.returncode == 0, done.stderr
            self.installed[key] = target
        return self.installed[key]

    def run(self, versions: Versions, *options: str) -> Finished:
        """Runs the training with a set."""
        path = os.pathsep.join(
            filter(None, (str(self.with_packages(versions)), os.environ.get("PYTHONPATH")))
        )
        words = ("run", "canary.yaml", "-q", *options)
        return canary(*words, more=ENVIRONMENT | {"PYTHONPATH": path}, cwd=self.project)
