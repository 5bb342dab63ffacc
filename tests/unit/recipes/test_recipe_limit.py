"""The recipe "add a limit": a row of the limits and the row of what is held to it, no more.

A copy of the package gets a made-up limit on a made-up metric. The schema, `--set`, the tables of
the documentation and a comparison then know it.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import canary
from canary.compare.thresholds import Thresholds
from canary.record.metric_names import Quantity
from tests.contract.pages import ROOT
from tests.unit.comparing import altered, record, write

PACKAGE = Path(canary.__file__).parent
KEY = "max_gold_drop_pct"
LIMIT = (
    f'    {KEY}: float = Field(50.0, gt=0, le=100, description="Drop of the mean gold reward.")\n'
)
HELD = f'    Quantity("gold", ("judge/gold",), worse="lower", limit="{KEY}"),\n'
END_OF_TABLE = ")\nQUANTITIES = "
TABLES = """
from tests.contract.tables import checks_table, keys_table
print(keys_table(), checks_table())
"""


def source_of(table: type) -> Path:
    """The file of a table, in the package."""
    return Path(inspect.getfile(table)).relative_to(PACKAGE.parent)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the two rows."""
    folder = tmp_path_factory.mktemp("house")
    unneeded = shutil.ignore_patterns("__pycache__", "embedded")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=unneeded)
    limits, metrics = folder / source_of(Thresholds), folder / source_of(Quantity)
    written = inspect.getsource(Thresholds)
    text = limits.read_text(encoding="utf-8")
    limits.write_text(text.replace(written, written + LIMIT), encoding="utf-8")
    text = metrics.read_text(encoding="utf-8")
    metrics.write_text(text.replace(END_OF_TABLE, HELD + END_OF_TABLE), encoding="utf-8")
    return folder


def told(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the copy in the place of the package."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=house,
        env=os.environ
        | {"PYTHONPATH": f"{house}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": ""},
        timeout=60,
        check=False,
    )


def test_the_schema_has_the_limit_with_its_type_and_meaning(house: Path) -> None:
    schema = json.loads(told(house, "-m", "canary", "config", "schema").stdout)
    key = schema["$defs"]["ThresholdsConfig"]["properties"][KEY]
    assert [kind["type"] for kind in key["anyOf"]] == ["number", "null"]
    assert key["description"] == "Drop of the mean gold reward."


def test_the_tables_of_the_documentation_have_it(house: Path) -> None:
    tables = told(house, "-c", TABLES).stdout
    assert (
        f"| `thresholds.{KEY}` | float | `null` | all | Drop of the mean gold reward. |" in tables
    )
    assert f"| mean gold | `gold` | stability | trend | `{KEY}` |" in tables


@pytest.mark.parametrize(("limit", "status"), [("", "pass"), (f"{KEY}: 20\n", "fail")])
def test_a_comparison_holds_runs_to_it(
    house: Path, tmp_path: Path, limit: str, status: str
) -> None:
    gold = record(kind="dpo").rl["rewards/margins"]
    runs = [
        write(
            tmp_path / name / "metrics.json",
            altered(
                record(number), "rl", to={"judge/gold": gold.model_copy(update={"mean": mean})}
            ),
        )
        for number, (name, mean) in enumerate({"baseline": 1.0, "current": 0.7}.items())
    ]
    limits = tmp_path / "limits.yaml"
    limits.write_text(f"base_tier: smoke\n{limit}")
    found = told(
        house,
        *("-m", "canary", "compare", str(runs[1]), str(runs[0])),
        *("--threshold-file", str(limits), "--format", "json"),
    )
    checks = {check["name"]: check for check in json.loads(found.stdout)["checks"]}
    assert checks["gold"]["status"] == status
    assert checks["gold"]["threshold"] == (20 if limit else 50)
