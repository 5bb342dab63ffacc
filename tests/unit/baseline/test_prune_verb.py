"""`canary baseline prune`: how many runs it keeps, and that it says what stays besides."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from canary.cli import app


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["history"], 100),
        (["--remote", "https://example.com/o/r.git"], 50),
        (["history", "--keep", "1"], 1),
    ],
)
def test_what_prune_keeps(arguments: list[str], kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch keeps as many as a push to it does."""
    monkeypatch.setattr(
        "canary.baseline.verbs.prune_text", lambda folder, keep: f"kept the newest {keep}"
    )
    monkeypatch.setattr(
        "canary.baseline.verbs.prune_branch_text",
        lambda remote, here, keep: f"kept the newest {keep}",
    )
    said = CliRunner().invoke(app, ["baseline", "prune", *arguments]).output
    assert said == f"kept the newest {kept}; the first three of the current period stay too\n"
