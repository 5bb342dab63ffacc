"""`canary --help` shows what people want to do, in one screen."""

from __future__ import annotations

from typer.testing import CliRunner

from canary.cli import app

MOST_VERBS = 20
PLUMBING = ("gate", "config", "env", "list", "clean")


def shown() -> set[str]:
    text = CliRunner().invoke(app, ["--help"]).output.partition("Begin:")[2]
    return {line.split()[0] for line in text.splitlines() if line.startswith("  ")} - {"More:"}


def test_help_shows_at_most_twenty_verbs_and_no_plumbing() -> None:
    assert len(shown()) <= MOST_VERBS
    assert not shown() & set(PLUMBING)
