"""Runs single steps of action.yml as GitHub's runner would: inputs to environment, then the script.

Understands the few expressions that action.yml uses, and fails on any other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STANDIN = Path(__file__).with_name("standin_docker.py")


@dataclass
class Runner:
    """A runner's folders and PATH, with a docker of our own on it."""

    root: Path
    workspace: Path
    event: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("temp", "bin", "docker"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "docker" / "info").write_text("Server Version: 28\n Runtimes: nvidia runc\n")

    @property
    def temp(self) -> Path:
        return self.root / "temp"

    def install(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def with_docker(self) -> None:
        self.install("docker", f'exec "{sys.executable}" "{STANDIN}" "$@"')

    def with_gpu(self) -> None:
        self.install("nvidia-smi", "echo 'GPU 0: stand-in'")

    def with_command_line(self) -> None:
        """What `report.sh` would install, without the index."""
        folder = self.temp / "canary-venv" / "bin"
        folder.mkdir(parents=True)
        (folder / "canary").write_text(
            f'#!/usr/bin/env bash\nexec "{sys.executable}" -m canary.cli "$@"\n'
        )
        (folder / "canary").chmod(0o755)

    def step(self, name: str, inputs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs the `run:` of a step with the environment that action.yml gives it."""
        step = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
        given = {key: str(spec.get("default", "")) for key, spec in ACTION["inputs"].items()}
        assert set(inputs) <= set(given)
        given |= dict(inputs)
        environment = {
            key: self._value(str(text), given) for key, text in step.get("env", {}).items()
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env=self._surroundings() | environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def _surroundings(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "STANDIN": str(self.root / "docker"),
            "PYTHONPATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.root / "output"),
            "GITHUB_STEP_SUMMARY": str(self.root / "summary"),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_TOKEN": "ghs_neverSeenByTheRunHalf",
            "ACTIONS_RUNTIME_TOKEN": "neverSeenEither",
        } | dict(self.extra)

    def _value(self, text: str, inputs: Mapping[str, str]) -> str:
        def one(match: re.Match[str]) -> str:
            for term in match[1].split("||"):
                value = self._term(term.strip(), inputs)
                if value:
                    return value
            return ""

        return re.sub(r"\$\{\{(.*?)\}\}", one, text)

    def _term(self, term: str, inputs: Mapping[str, str]) -> str:
        if term.startswith("inputs."):
            return inputs[term.removeprefix("inputs.")]
        if term.startswith("github.event."):
            value: Any = self.event
            for part in term.removeprefix("github.event.").split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            return str(value or "")
        known = {
            "runner.temp": str(self.temp),
            "github.workspace": str(self.workspace),
            "strategy.job-total": "1",
            "github.token": "ghs_neverSeenByTheRunHalf",
        }
        return known[term]

    def outputs(self) -> dict[str, str]:
        """The outputs set so far, as the runner reads them."""
        found: dict[str, str] = {}
        lines = (self.root / "output").read_text().splitlines()
        while lines:
            line = lines.pop(0)
            name, mark, value = re.split(r"(<<|=)", line, maxsplit=1)
            if mark == "<<":
                rest: list[str] = []
                while lines[0] != value:
                    rest.append(lines.pop(0))
                lines.pop(0)
                value = "\n".join(rest)
            found[name] = value
        return found
