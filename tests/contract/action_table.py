"""The README's tables of the action's inputs and outputs, made from action.yml.

`python -m tests.contract.action_table` prints both, between the marks that the README needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).parents[2] / "action.yml"
MARKS = {
    "inputs": ("<!-- inputs table -->\n", "<!-- end of inputs table -->"),
    "outputs": ("<!-- outputs table -->\n", "<!-- end of outputs table -->"),
}


def action() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return content


def inputs_table() -> str:
    """Every input with its default and meaning."""
    rows = ["| input | default | meaning |", "|---|---|---|"]
    for name, one in action()["inputs"].items():
        default = one.get("default", "")
        shown = f"`{default}`" if default else ""
        rows.append(f"| `{name}` | {shown} | {_cell(one['description'])} |")
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


if __name__ == "__main__":
    for name, table in (("inputs", inputs_table()), ("outputs", outputs_table())):
        begin, end = MARKS[name]
        print(f"{begin}{table}{end}\n")
