"""`canary --help` shows what people want to do, in one screen."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from canary.cli import app

README = Path(__file__).parents[2] / "README.md"
MOST_VERBS = 20
PLUMBING = ("gate", "config", "env", "list", "clean")


def shown() -> set[str]:
    text = CliRunner().invoke(app, ["--help"]).output.partition("Begin:")[2]
    return {line.split()[0] for line in text.splitlines() if line.startswith("  ")} - {"More:"}


def test_help_shows_at_most_twenty_verbs_and_no_plumbing() -> None:
    assert len(shown()) <= MOST_VERBS
    assert not shown() & set(PLUMBING)


def test_every_verb_of_the_readme_is_in_the_help() -> None:
    text = README.read_text(encoding="utf-8")
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    used = set(re.findall(r"^canary (\S+)", commands, flags=re.MULTILINE))
    assert used
    assert used <= shown()
