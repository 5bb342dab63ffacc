"""python -m tools.notebooks [NAME ...]: execute notebooks and store their outputs, cleaned."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import nbformat

from tools.notebooks.outputs import clean_notebook
from tools.notebooks.run import every, executed


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
