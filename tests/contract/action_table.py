"""Tables of the action's inputs and outputs, made from action.yml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).parents[2] / "action.yml"
MODES = ("run", "report", "plan", "prefetch")


def action() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return content


def modes_of(content: dict[str, Any]) -> dict[str, str]:
    """Input -> the modes in which it works: those of the steps that are handed it. The mode `all`
    is the modes run, report and plan together, and is not named on its own."""
    found: dict[str, set[str]] = {name: set() for name in content["inputs"]}
    for step in content["runs"]["steps"]:
        modes = set(re.findall(r"inputs\.mode == '(\w+)'", step.get("if", ""))) or set(MODES)
        handed = yaml.safe_dump({key: step.get(key) for key in ("env", "with")})
        for name in re.findall(r"(?<!event\.)inputs\.([\w-]+)", handed):
            found[name] |= modes
    found["mode"] = set(MODES)
    return {name: _shown(modes) for name, modes in found.items()}


def _shown(modes: set[str]) -> str:
    named = [mode for mode in MODES if mode in modes]
    return "every" if len(named) == len(MODES) else ", ".join(named)


def inputs_table() -> str:
    """Every input with its default, the modes that it works in, and its meaning."""
    rows = ["| input | default | modes | meaning |", "|---|---|---|---|"]
    modes = modes_of(action())
    for name, one in action()["inputs"].items():
        default = one.get("default", "")
        shown = f"`{default}`" if default else ""
        rows.append(f"| `{name}` | {shown} | {modes[name]} | {_cell(one['description'])} |")
    return "\n".join(rows) + "\n"


def outputs_table() -> str:
    """Every output with its meaning."""
    rows = ["| output | meaning |", "|---|---|"]
    rows += [
        f"| `{name}` | {_cell(one['description'])} |" for name, one in action()["outputs"].items()
    ]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
