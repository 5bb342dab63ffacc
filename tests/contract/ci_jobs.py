"""The jobs of examples/ci as their CI starts them, and stand-ins for what the CI gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "ci"
GITLAB, BUILDKITE, JENKINS = (
    FOLDER / name for name in ("gitlab-ci.yml", "buildkite.yml", "Jenkinsfile")
)
STANDINS = {
    "pip": "exit 0",
    "glab": 'printf "%s\\n" "$@" > glab_arguments',
    # `artifact download` fails without artifacts, as the agent does.
    "buildkite-agent": """
case "$1" in
  artifact) cp -R "$STANDIN_ARTIFACTS/." . 2> /dev/null ;;
  annotate) shift; printf '%s ' "$@" > annotated; cat > annotation.md ;;
esac
""",
}
"""Programs of a CI, which are not here."""
WITHOUT_CHARTS = """
import importlib.machinery, sys

class Core(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "altair" else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Core
"""
"""The jobs install the package without its extras, so no report has charts."""


@dataclass(frozen=True)
class Job:
    """One job's shell."""

    ci: str
    name: str
    script: str

    @property
    def command(self) -> list[str]:
        """How this CI starts it."""
        shells = {
            "gitlab": ["bash", "-e", "-o", "pipefail", "-c"],
            "buildkite": ["bash", "-e", "-c"],
            "jenkins": ["sh", "-xe", "-c"],
        }
        return [*shells[self.ci], self.script]


def gitlab() -> dict[str, Any]:
    """The file; a hidden job (`.canary`) is among the jobs."""
    content: dict[str, Any] = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))
    return content


def gitlab_jobs() -> list[Job]:
    content = gitlab()
    return [
        Job("gitlab", name, "\n".join([*_setup(content, job), *job["script"]]))
        for name, job in content.items()
        if name != "variables" and "script" in job
    ]


def _setup(content: dict[str, Any], job: dict[str, Any]) -> list[str]:
    lines: list[str] = content.get(str(job.get("extends")), {}).get("before_script", [])
    return lines


def buildkite() -> list[dict[str, Any]]:
    """The steps."""
    steps: list[dict[str, Any]] = yaml.safe_load(BUILDKITE.read_text(encoding="utf-8"))["steps"]
    return steps


def buildkite_jobs() -> list[Job]:
    """With `$$` as `$`, as `buildkite-agent pipeline upload` passes it on."""
    return [
        Job("buildkite", step["key"], step["command"].replace("$$", "$")) for step in buildkite()
    ]


def jenkins_jobs() -> list[Job]:
    """The `sh` steps; `STAGE-clean` is what runs before the stash is there. In a Groovy text, a
    backslash at the end of a line joins it to the next."""
    found = []
    for stage in JENKINS.read_text(encoding="utf-8").split("stage('")[1:]:
        name = stage.partition("'")[0].replace(" ", "-")
        scripts = re.findall(r"sh '''\n(.*?)'''", stage, re.DOTALL)
        for ending, script in zip(("", "-clean"), reversed(scripts), strict=False):
            shell = textwrap.dedent(script.replace("\\\n", ""))
            found.append(Job("jenkins", f"{name}{ending}", shell))
    return found


def all_jobs() -> list[Job]:
    return [*gitlab_jobs(), *buildkite_jobs(), *jenkins_jobs()]


def job(ci: str, name: str) -> Job:
    (found,) = [one for one in all_jobs() if (one.ci, one.name) == (ci, name)]
    return found


def without_charts(folder: Path) -> dict[str, str]:
    """Environment of a Python in which nothing draws charts; `folder` gets a file for it."""
    (folder / "sitecustomize.py").write_text(WITHOUT_CHARTS, encoding="utf-8")
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*([before] if before else []), str(folder)])}


def started(one: Job, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a job's shell in a folder, with stand-ins and this environment's `canary` on PATH. It
    draws no charts."""
    programs = folder.parent / "programs"
    programs.mkdir(exist_ok=True)
    for name, script in STANDINS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    environ = without_charts(programs) | environ
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return subprocess.run(
        one.command,
        cwd=folder,
        env={**kept, "PATH": path, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
