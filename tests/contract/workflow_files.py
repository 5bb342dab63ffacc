"""The workflows and the action as files: where they are, their jobs, the answers of the examples.

`python -m tests.contract.workflow_files` writes the examples anew from the templates of `init`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from canary.gate import workflows as written
from canary.gate.workflows import HOSTED, Answers, rendered

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "workflows"
OWN = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
OUR_ACTION = written.ACTION

EXAMPLE_ANSWERS = {
    "canary": Answers(),
    "canary-fork": Answers(forks=True),
    "canary-fork-report": Answers(forks=True),
    "hosted": Answers(labels=(HOSTED,)),
    "kubernetes": Answers(runner="container", labels=("arc-gpu",)),
    "model-cache": Answers(model_cache="/srv/huggingface"),
}
"""Example -> the answers that give it."""


def example(name: str) -> str:
    """What `init` writes for an example."""
    files = rendered(EXAMPLE_ANSWERS[name])
    return files.get(f"{name}.yml", files["canary.yml"])


@dataclass(frozen=True)
class Job:
    """A job of a workflow."""

    file: Path
    name: str
    content: dict[str, Any]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self.content.get("steps", []))

    @property
    def modes(self) -> list[str]:
        """Modes in which it calls our action."""
        return [
            step.get("with", {}).get("mode", "all")
            for step in self.steps
            if step.get("uses") == OUR_ACTION
        ]

    @property
    def hosted(self) -> bool:
        """Whether it runs on GitHub's own machines."""
        return str(self.content["runs-on"]).startswith("ubuntu-")


def load(path: Path) -> dict[Any, Any]:
    """A workflow; `on` is YAML's word for true, and comes back under its name."""
    content: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if True in content:
        content["on"] = content.pop(True)
    return content


def examples() -> list[Path]:
    return sorted(EXAMPLES.glob("*.yml"))


def workflows() -> list[Path]:
    """Ours and those to paste."""
    return [*OWN, *examples()]


def jobs(paths: list[Path]) -> list[Job]:
    return [
        Job(path, name, content) for path in paths for name, content in load(path)["jobs"].items()
    ]


def write_examples() -> None:
    for name in EXAMPLE_ANSWERS:
        (EXAMPLES / f"{name}.yml").write_text(example(name), encoding="utf-8")


if __name__ == "__main__":
    write_examples()
