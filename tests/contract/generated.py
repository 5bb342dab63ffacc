"""Parts of the docs that are made from the program: tables of config, action and verbs, an answer.

Each stands between `<!-- NAME -->` and `<!-- end of NAME -->`. `UPDATE_GOLDEN=1 pytest
tests/contract/test_docs.py` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from canary.cli import app
from canary.compare.rules import RULES, answers
from canary.report.rules import answer_text
from tests.contract.action_table import inputs_table, outputs_table
from tests.contract.pages import DOCS
from tests.contract.pytest_example import failure_example
from tests.contract.recorded_answers import FAULTS, recorded_answer
from tests.contract.tables import gates_table, keys_table, preset_table, trainers_table
from tests.unit.comparing import altered, example

CONFIG_SECTIONS = {
    "the canary": "name",
    "model": "model_name",
    "data": "dataset_name",
    "training": "max_steps",
    "ppo": "ppo.reward_model",
    "speed": "speed.advantages",
    "code of your own": "reward_functions",
    "machine": "device",
    "launches and files": "stop_on",
    "profiler": "profiler.enabled",
    "limits": "thresholds.base_tier",
    "metrics": "metrics",
    "check": "check.disable",
}
"""Sections of the page, each with the first of its keys, in the order of the schema."""


def config_table(section: str) -> str:
    """The keys of one section, with type, default, trainers and meaning."""
    head, rule, *rows = keys_table().splitlines()
    firsts = {f"`{key}`": name for name, key in CONFIG_SECTIONS.items()}
    chosen: list[str] = []
    current = ""
    for row in rows:
        current = firsts.get(row.split(" ")[1], current)
        if current == section:
            chosen.append(row)
    return "\n".join([head, rule, *chosen]) + "\n"


def verbs() -> str:
    """Every verb with its arguments and options, from the program's own help."""
    return "\n".join(_verb("canary", get_command(app)))


def _verb(words: str, command: object) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, one in sorted(command.commands.items()):
            yield from _verb(f"{words} {name}", one)
        return
    assert isinstance(command, TyperCommand)
    yield f"### {words}\n\n{' '.join((command.help or '').split())}\n"
    if command.params:
        yield "| argument or option | default | meaning |\n|---|---|---|"
        yield "\n".join(map(_row, command.params)) + "\n"


def _row(param: object) -> str:
    assert isinstance(param, TyperArgument | TyperOption)
    value = param.metavar or (param.name or "").rstrip("_").upper()
    if isinstance(param, TyperArgument):
        left = value
    elif param.is_flag:
        left = ", ".join([*param.opts, *param.secondary_opts])
    else:
        left = f"{', '.join(param.opts)} {value}"
    default = param.default
    if isinstance(default, bool) and not param.secondary_opts:
        default = None
    shown = "" if default is None or callable(default) else f"`{default}`"
    return f"| `{_cell(left)}` | {shown} | {_cell(' '.join((param.help or '').split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def check_answer() -> str:
    """How `canary check` begins on a terminal of 100 columns: of a run whose labels lack EOS."""
    record = example()
    batches = [[one | {"eos_labels": 0} for one in step] for step in record.exact["batches"]]
    faulty = altered(record, "exact", "batches", to=batches)
    whole = answer_text(answers(faulty), "canary_output/sft", "text", 100)
    begin = "\n\n".join(whole.split("\n\n")[:2])
    return f"```text\n{begin}\n```\n"


def rules_table() -> str:
    """Every rule, what it needs, and what to do."""
    lines = ["| rule | what must hold | needs | if it is broken |", "|---|---|---|---|"]
    for one in RULES:
        name = f"[`{one.id}`]({one.source})" if one.source else f"`{one.id}`"
        lines.append(f"| {name} | {one.holds} | {one.needs} | {one.do} |")
    return "\n".join(lines) + "\n"


PARTS: dict[str, tuple[Path, Callable[[], str]]] = {
    "inputs table": (DOCS / "action.md", inputs_table),
    "outputs table": (DOCS / "action.md", outputs_table),
    "trainers": (DOCS / "trainers.md", trainers_table),
    "gates table": (DOCS / "metrics.md", gates_table),
    "pytest failure": (DOCS / "ci.md", failure_example),
    "verbs": (DOCS / "cli.md", verbs),
    "check answer": (DOCS / "check.md", check_answer),
    "rules": (DOCS / "rules.md", rules_table),
    "presets": (DOCS / "import.md", preset_table),
    **{f"{name} answer": (DOCS / "import.md", partial(recorded_answer, name)) for name in FAULTS},
    **{
        f"config table: {section}": (DOCS / "config.md", partial(config_table, section))
        for section in CONFIG_SECTIONS
    },
}
"""Name of a part -> its page, and what makes it."""


def part(text: str, name: str) -> re.Match[str] | None:
    """Where the part stands in a page; group 2 is its content."""
    return re.search(rf"(<!-- {name} -->\n)(.*?)(<!-- end of {name} -->)", text, re.DOTALL)
