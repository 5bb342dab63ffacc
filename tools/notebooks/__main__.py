"""python -m tools.notebooks [NAME ...]: execute notebooks and store their outputs, cleaned."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tools.notebooks.outputs import clean_notebook

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="the first letters of some; none: all")
    names = tuple(parser.parse_args().names)
    for path in every():
        if names and not path.name.startswith(names):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
            clean_notebook(notebook, Path(folder))
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
