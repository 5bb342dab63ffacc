"""Runs a notebook from its first cell to its last."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LONGEST_S = 600
"""Of one cell."""
VARIABLES = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONWARNINGS": "ignore", "TERM": "dumb"}


def every() -> list[Path]:
    """Return the notebooks in the order of learning."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def read(path: Path) -> Any:
    """Return a notebook as nbformat reads it."""
    return nbformat.read(path, as_version=4)


def executed(path: Path, folder: Path) -> Any:
    """Return a notebook with the outputs of a run in a folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = read(path)
    client = NotebookClient(
        notebook,
        timeout=LONGEST_S,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    # `!canary` must be that of this Python.
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    client.execute(env={**os.environ, **VARIABLES, "PATH": search})
    return notebook
