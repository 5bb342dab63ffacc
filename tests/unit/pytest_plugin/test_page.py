"""The examples of docs/ci.md, in a project of a team."""

from __future__ import annotations

import inspect
import re
import shutil

import pytest

from canary.pytest_plugin import Canary
from tests.contract.pages import DOCS, examples, read
from tests.unit.comparing import record, write
from tests.unit.pytest_plugin.conftest import Team

pytest_plugins = ["pytester"]

TIERS = {"default", "smoke", "perf", "nightly", "value"}
PAGE = DOCS / "ci.md"
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")


def example(name: str) -> str:
    """The block that begins with a file's name."""
    blocks = [*examples(PAGE, "python"), *examples(PAGE, "toml")]
    (found,) = [block for block in blocks if FILE.match(block) and name in block.split("\n")[0]]
    return found


@pytest.fixture
def page_team(team: Team) -> Team:
    """A team with the files that the page names."""
    (team.path / "canary.yaml").write_text("name: canary\n")
    write(team.path / "canary.json", record(100))
    good = team.path / "good.json"
    shutil.copy(good, team.path / "train.json")
    write(team.path / "nightly" / "metrics.json", record(100, run_id="night"))
    write(team.path / "baseline.json", record(7, run_id="day"))
    for name in ("test_training.py", "test_more.py"):
        (team.path / name).write_text(example(name))
    return team


def test_its_tests_pass_with_its_options(page_team: Team) -> None:
    (page_team.path / "tox.ini").unlink()
    (page_team.path / "pyproject.toml").write_text(example("pyproject.toml"))
    shown = page_team.run("--strict-config", "--canary-save", "-rA")
    # A strict session fails where speed is not decided: of one run against one.
    shown.assert_outcomes(passed=5, failed=1)
    shown.stdout.fnmatch_lines(["FAILED test_more.py::test_run_of_last_night - *"])
    assert list((page_team.path / "histories" / "canary").glob("v2/*/*/*.json"))


def test_its_tables_have_every_option_and_argument(page_team: Team) -> None:
    known = set(re.findall(r"--canary-\w+", page_team.run("--help").stdout.str()))
    assert known == set(re.findall(r"^\| `(--canary-\w+)", read(PAGE), re.M))
    methods = [method for name, method in vars(Canary).items() if name.startswith("assert_")]
    named = {name for method in methods for name in inspect.signature(method).parameters}
    table = read(PAGE).partition("| argument |")[2].partition("\n\n")[0]
    assert named - {"self", "command", "run"} == set(re.findall(r"`(\w+)`", table)) - TIERS
