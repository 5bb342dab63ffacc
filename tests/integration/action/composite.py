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

ROOT = Path(__file__).parents[3]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STANDIN = Path(__file__).with_name("standin_docker.py")


def step_named(name: str) -> dict[str, Any]:
    """A step of action.yml."""
    found: dict[str, Any] = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
    return found


@dataclass
class Runner:
    """A runner's folders and PATH, with a docker of our own on it."""

    root: Path
    workspace: Path
    event: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    action: Path = ROOT
    user: int | None = None
    """Whose processes the steps are; our own where it is None."""

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

    def with_command_line(self, before: str = "", *lines: str) -> None:
        """A Python whose pip installs what the tests run with, without the index. `before` is what
        the command does first; `lines` go into the .pth file of the environment that it fills."""
        folders = [path for path in sys.path if path.endswith("site-packages")]
        text = "\n".join([*folders, *lines])
        self.install(
            "python3.13",
            f"""{before}
            if [ "${{*:2:2}}" = "-m pip" ]; then
              for site in "${{5%/bin/python}}"/lib/python*/site-packages; do
                echo '{text}' >"$site/of-the-tests.pth"
              done
            else
              exec '{sys.executable}' "$@"
            fi""",
        )

    def step(self, name: str, inputs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs the `run:` of a step with the environment that action.yml gives it."""
        child = self.start(name, inputs)
        out, err = child.communicate(timeout=280)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def start(self, name: str, inputs: Mapping[str, str]) -> subprocess.Popen[str]:
        """Starts a step as the runner does: its script in a file, one shell for it."""
        step = step_named(name)
        given = self._given(inputs)
        environment = {
            key: self._value(str(text), given) for key, text in step.get("env", {}).items()
        }
        script = self.root / "docker" / "step.sh"
        script.write_text(step["run"])
        return subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env=self._surroundings() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
        )

    def train(self, inputs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """The steps of `mode: run` but the upload; the answer is of the first."""
        done = self.step("Train", inputs)
        collected = self.step("Collect the records", inputs)
        for said in (done.stderr, collected.stderr):
            assert not re.search(r"\.sh: line \d+:", said), f"an error of bash: {said}"
        manifest = self.temp / "canary-records" / "gate.json"
        if manifest.exists():
            told = manifest.read_text()
            assert str(self.root) not in told, "the answer tells a path of the runner"
        return done

    def due(self, name: str, inputs: Mapping[str, str], *, cancelled: bool = False) -> bool:
        """Whether the runner would start a step, in a job that goes on or that was cancelled."""
        given = self._given(inputs)
        condition = step_named(name).get("if", "success()")
        if cancelled and not re.search(r"\b(always|cancelled)\(\)", condition):
            return False
        condition = condition.replace("always()", "True").replace("&&", "and").replace("||", "or")
        names = r"\b(?:inputs|steps|github|runner)(?:\.[\w-]+)+"
        filled = re.sub(names, lambda one: repr(self._term(one[0], given)), condition)
        return bool(eval(filled, {"contains": lambda text, part: part in text}))

    def kept(self, inputs: Mapping[str, str]) -> tuple[str, Path] | None:
        """Name and folder of the next step's upload; None where its condition does not hold."""
        if not self.due("Keep the records", inputs, cancelled=True):
            return None
        upload, given = step_named("Keep the records")["with"], self._given(inputs)
        return self._value(upload["name"], given), Path(self._value(upload["path"], given))

    @staticmethod
    def _given(inputs: Mapping[str, str]) -> dict[str, str]:
        given = {key: str(spec.get("default", "")) for key, spec in ACTION["inputs"].items()}
        assert set(inputs) <= set(given)
        return given | dict(inputs)

    def _surroundings(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "STANDIN": str(self.root / "docker"),
            "PYTHONPATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(self.action),
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
        if term.startswith("steps."):
            return self.outputs().get(term.rpartition(".")[2], "")
        if term.startswith("github.event."):
            value: Any = self.event
            for part in term.removeprefix("github.event.").split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            return str(value or "")
        known = {
            "runner.temp": str(self.temp),
            "github.event_name": self.extra.get("GITHUB_EVENT_NAME", ""),
            "github.workspace": str(self.workspace),
            "strategy.job-total": "1",
            "github.token": "ghs_neverSeenByTheRunHalf",
        }
        return known[term]

    def outputs(self) -> dict[str, str]:
        """The outputs set so far, as the runner reads them."""
        found: dict[str, str] = {}
        path = self.root / "output"
        lines = path.read_text().splitlines() if path.exists() else []
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
