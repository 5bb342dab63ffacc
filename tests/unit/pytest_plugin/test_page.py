"""The examples of docs/pytest.md, in a project of a team."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from canary.pytest_plugin import Canary
from tests.contract.pages import DOCS, examples, read
from tests.unit.comparing import record, write
from tests.unit.pytest_plugin.conftest import CONFTEST, Team

pytest_plugins = ["pytester"]

TIERS = {"default", "smoke", "perf", "nightly", "value"}
PAGE = DOCS / "pytest.md"
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
    assert list((page_team.path / "histories" / "canary").glob("v1/*/*/*.json"))


def test_its_commands_are_understood(page_team: Team) -> None:
    lines = [line.split("#")[0] for block in examples(PAGE, "bash") for line in block.splitlines()]
    inline = re.findall(r"`(pytest [^`]+)`", read(PAGE))
    commands = {*(line.strip() for line in lines if line.startswith("pytest")), *inline}
    assert len(commands) > 4
    for command in sorted(commands):
        words = shlex.split(command)[1:]
        shown = page_team.run("--collect-only", *words)
        assert shown.ret != pytest.ExitCode.USAGE_ERROR, command


def test_its_tables_have_every_option_and_argument(page_team: Team) -> None:
    known = set(re.findall(r"--canary-\w+", page_team.run("--help").stdout.str()))
    assert known == set(re.findall(r"^\| `(--canary-\w+)", read(PAGE), re.M))
    methods = [method for name, method in vars(Canary).items() if name.startswith("assert_")]
    named = {name for method in methods for name in inspect.signature(method).parameters}
    table = read(PAGE).partition("| argument |")[2].partition("\n\n")[0]
    assert named - {"self", "command", "run"} == set(re.findall(r"`(\w+)`", table)) - TIERS


def test_its_fixture_reads_the_baseline_branch(
    page_team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = page_team.path
    subprocess.run(["git", "init", "-q", "--bare", "origin.git"], cwd=path, check=True)
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    remote = ["git", "remote", "add", "origin", str(path / "origin.git")]
    subprocess.run(remote, cwd=path, check=True)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    page_team.pytester.makeconftest(CONFTEST + example("conftest.py"))
    shown = page_team.run("test_training.py", "-s")
    shown.assert_outcomes(passed=1, warnings=1)
    shown.stdout.fnmatch_lines(["*does not exist yet; */history is an empty history"])
