"""`python -m tools.house`: how large the project is. `LIMITS` keeps it from growing back: a test
fails beyond them. Who removes something lowers its limit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
LIMITS = {
    "lines of canary": 66_100,
    "lines of tests": 63_110,
    "lines of bench": 20_190,
    "lines of tools": 1_500,
    "lines of canary/anomaly": 40,
    "lines of canary/baseline": 1_780,
    "lines of canary/bisect": 2_450,
    "lines of canary/campaign": 2_220,
    "lines of canary/cli": 1_740,
    "lines of canary/compare": 12_370,
    "lines of canary/config": 2_460,
    "lines of canary/gate": 2_870,
    "lines of canary/github": 1_800,
    "lines of canary/imports": 2_210,
    "lines of canary/inputs": 780,
    "lines of canary/ladder": 1_770,
    "lines of canary/machine": 1_060,
    "lines of canary/matrix": 2_010,
    "lines of canary/protocol": 770,
    "lines of canary/pytest_plugin": 710,
    "lines of canary/record": 4_020,
    "lines of canary/report": 3_970,
    "lines of canary/runner": 2_120,
    "lines of canary/serve": 760,
    "lines of canary/training": 17_020,
    "lines of canary/trends": 1_000,
    "files too long": 0,
    "functions too long": 0,
    "pages": 25,
    "kB of pages": 234,
    "verbs": 18,
    "options of a verb": 12,
    "config keys": 133,
    "inputs of the action": 21,
}


def lines_below(folder: str) -> int:
    """Return the lines of all Python files below a folder of the project."""
    files = (ROOT / folder).rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def long_functions() -> Iterator[str]:
    """Yield the names of the package's functions over `LONGEST_FUNCTION` lines, docstrings
    included."""
    for file in sorted((ROOT / "canary").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield f"{file.relative_to(ROOT)}: {node.name}, {length} lines"


def long_files() -> Iterator[str]:
    """Yield the package's files over `LONGEST_FILE` lines."""
    for file in sorted((ROOT / "canary").rglob("*.py")):
        count = len(file.read_text(encoding="utf-8").splitlines())
        if count > LONGEST_FILE:
            yield f"{file.relative_to(ROOT)}, {count} lines"


def config_keys() -> int:
    """Return how many keys a config may have, those of its sections included."""
    from pydantic import BaseModel

    from canary.config.load import SECTIONS
    from canary.config.metric_gates import MetricGate
    from canary.config.schema import CanaryConfig

    inner: list[type[BaseModel]] = [*SECTIONS.values(), MetricGate]
    plain = len(CanaryConfig.model_fields) - len(inner)
    return plain + sum(len(section.model_fields) for section in inner)


def verbs() -> Mapping[str, Any]:
    """Return the verbs that `canary --help` lists: name -> command."""
    import typer

    from canary.cli.verbs import app

    group: Any = typer.main.get_command(app)
    return {name: one for name, one in group.commands.items() if not one.hidden}


def most_options() -> int:
    """Return the options of the verb that has the most, without `--help`."""
    return max(
        sum(parameter.param_type_name == "option" for parameter in one.params)
        for one in verbs().values()
    )


def figures() -> dict[str, int]:
    """Return every figure that `LIMITS` bounds."""
    pages = sum(file.stat().st_size for file in (ROOT / "docs").glob("*.md"))
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    return {
        **{f"lines of {name}": lines_below(name) for name in ("canary", "tests", "bench", "tools")},
        **{f"lines of canary/{one.name}": lines_below(f"canary/{one.name}") for one in packages()},
        "files too long": len([*long_files()]),
        "functions too long": len([*long_functions()]),
        "pages": len([*(ROOT / "docs").glob("*.md")]),
        "kB of pages": round(pages / 1000),
        "verbs": len(verbs()),
        "options of a verb": most_options(),
        "config keys": config_keys(),
        "inputs of the action": len(action["inputs"]),
    }


def packages() -> list[Path]:
    """Return the packages in `canary`."""
    return sorted(file.parent for file in (ROOT / "canary").glob("*/__init__.py"))


if __name__ == "__main__":
    for name, figure in figures().items():
        print(f"{figure:8,}  {name}")
    for one in (*long_files(), *long_functions()):
        print(f"          {one}")
