"""README against the program."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from typer.main import get_command

from canary.cli import app
from canary.config.render import markdown_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_config_table_is_the_generated_one() -> None:
    table = README.split("markdown_table -->\n")[1].split("<!-- end of config table -->")[0]
    assert table == markdown_table()


def test_every_command_in_readme_exists() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    used = re.findall(r"^canary ([a-z-]+)", README, flags=re.MULTILINE)
    assert used
    assert set(used) <= set(commands)


def test_every_config_in_readme_exists() -> None:
    for name in re.findall(r"configs/[a-z_/]+\.yaml", README):
        assert yaml.safe_load((ROOT / name).read_text()), name


def test_ci_runs_the_two_commands_of_readme_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for command in ("make demo", "make test"):
        assert f"\n{command}" in README
        assert f"\n{command}\n" in script
