"""How one process of the canary starts another, and which files of the user's hide its modules."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

NAMED = re.compile(r"module named '(\w+)|module '(\w+)|from '(\w+)|'(\w+)' is not a package")
"""What errors of imports name."""
TRAINING_STACK = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
KNOWN = {*sys.stdlib_module_names, *TRAINING_STACK, "canary", "numpy", "pydantic", "yaml"}


def program(python: str | os.PathLike[str]) -> list[str]:
    """Return the words that start the command line with a Python."""
    return [os.fspath(python), *module("canary.cli")]


def module(name: str) -> list[str]:
    """Return the words after a Python that run a module of the canary.

    No module is taken from the working folder: it is the user's, and may hold a `typer.py`.
    """
    return ["-P", "-m", name]


def hidden_module(said: str, folders: Iterable[Path]) -> str | None:
    """Return a hint if an error names a known module that a user's file hides; None otherwise.

    Args:
        said: what a failed process printed.
        folders: where it looks for modules before it looks among the installed ones.
    """
    names = {name for found in NAMED.findall(said) for name in found if name in KNOWN}
    for folder in folders:
        if any(folder.glob("*.dist-info")) or (folder / "canary" / "training").is_dir():
            continue  # Packages are installed there, or it is the canary's source.
        for name in sorted(names):
            for file in (folder / f"{name}.py", folder / name / "__init__.py"):
                if file.is_file():
                    return f"{file} hides the module {name}: rename it"
    return None
