"""Axes and excludes, as a workflow's matrix has them, single cells, and the words that run one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.main import get_command

from canary.cli.verbs import app
from canary.errors import ConfigError
from canary.matrix.cells import Cell, cells_of
from canary.matrix.document import Verb, read_matrix
from canary.matrix.running import command_of


def cells(tmp_path: Path, **document: Any) -> tuple[Cell, ...]:
    file = tmp_path / "matrix.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return cells_of(*read_matrix(file), file)


def test_axes_are_multiplied(tmp_path: Path) -> None:
    matrix = {
        "config": ["a.yaml", "b.yaml"],
        "dtype": ["float32", "bfloat16"],
        "speed.liger": [True],
        "ranks": [1, 2],
    }
    found = cells(tmp_path, matrix=matrix)
    assert len(found) == 8
    assert found[0].name == "a-float32-liger-true-1ranks"
    assert found[-1].config == "b.yaml"
    assert found[-1].settings == ("dtype=bfloat16", "speed.liger=true")
    assert found[-1].ranks == 2


def test_an_exclude_takes_all_cells_that_it_fits(tmp_path: Path) -> None:
    matrix: dict[str, Any] = {"config": ["a.yaml", "b.yaml"], "ranks": [1, 2]}
    matrix["exclude"] = [{"config": "a.yaml", "ranks": 2}, {"config": "b.yaml"}]
    assert [one.name for one in cells(tmp_path, matrix=matrix)] == ["a-1ranks"]


def test_listed_cells_may_have_any_verb(tmp_path: Path) -> None:
    found = cells(
        tmp_path,
        cells=[
            {"config": "a.yaml", "verb": "check", "arguments": "--set max_steps=8"},
            {"name": "mine", "verb": "exec", "command": "python 'my train.py'"},
        ],
    )
    assert found[0].arguments == ("--set", "max_steps=8")
    assert found[1].command == ("python", "my train.py")
    assert found[1].name == "mine"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "has no cells"),
        ({"matrix": {"config": "a.yaml"}}, "matrix.config in MATRIX:2 is not a list of values"),
        ({"matrix": {"config": ["a.yaml"], "exclude": [{"dtyp": 1}]}}, "is not an axis of this"),
        ({"matrix": {"config": ["a"], "include": [{"dtype": 1}]}}, "is not an axis (write exclude"),
        ({"matrix": {"config": [*map(str, range(200))], "seed": [*range(200)]}}, "40000 cells"),
        (
            {"cells": [{"config": "a.yaml"}, {"config": "a.yaml"}]},
            "cell a in MATRIX:3 has the same name as another",
        ),
        ({"cells": [{"config": "a.yaml", "name": "../up"}]}, "use letters, digits"),
        ({"cells": [{"dtype": "float32"}]}, "has neither config nor command"),
        ({"cells": [{"config": "a.yaml", "stack": "old"}]}, "define it under `stacks:`"),
        ({"stacks": {"../up": {}}, "cells": [{"config": "a.yaml"}]}, "stacks"),
        ({"cels": []}, "did you mean 'cells'?"),
        ({"matrix": {"config": ["a"], "exclude": [{"config": "b"}]}}, "exclude.0 in MATRIX:5 fits"),
        ({"cells": [], "save": True}, "`save: true` needs `history: FOLDER`"),
        ({"launcher": {"partition": "gpu"}}, "set launcher.kind: slurm"),
        ({"cells": [{"config": "a.yaml", "name": 0.1}]}, 'not text (write name: "0.1")'),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, document: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cells(tmp_path, **document)
    assert words.replace("MATRIX", str(tmp_path / "matrix.yaml")) in str(caught.value)


def test_long_names_stay_apart(tmp_path: Path) -> None:
    found = cells(tmp_path, cells=[{"config": f"{'a' * 90}{one}.yaml"} for one in "bc"])
    assert len({one.name for one in found}) == 2
    assert all(len(one.name) <= 80 for one in found)


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


def test_a_command_brings_its_own_ranks_to_a_check() -> None:
    command = ("torchrun", "--nproc-per-node", "2", "a.py")
    cell = Cell("a", "check", None, (), command=command, ranks=2)
    assert not any("nproc=" in word for word in command_of(cell, Path("python"), Path("try")))
