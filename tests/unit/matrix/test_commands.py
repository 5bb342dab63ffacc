"""The words that run a cell are those that its verb knows."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from canary.cli.verbs import app
from canary.matrix.cells import Cell
from canary.matrix.document import Verb
from canary.matrix.run import command_of


@pytest.mark.parametrize("verb", get_args(Verb))
def test_a_verb_knows_every_option_of_its_cell(verb: Verb) -> None:
    cell = Cell("a", verb, "canary.yaml", ("max_steps=9",), ranks=2, device="cpu")
    words = command_of(cell, Path("python"), Path("try"))
    parameters = get_command(app).commands[verb].params  # type: ignore[attr-defined]
    known = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
    options = [
        word for word in words[words.index(verb) :] if word.startswith("--") and word != "--"
    ]
    assert "--set" in options
    assert set(options) <= known
