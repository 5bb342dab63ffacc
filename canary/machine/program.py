"""How one process of the canary starts another."""

from __future__ import annotations

import os


def program(python: str | os.PathLike[str]) -> list[str]:
    """Return the words that start the command line with a Python."""
    return [os.fspath(python), *module("canary.cli")]


def module(name: str) -> list[str]:
    """Return the words after a Python that run a module of the canary.

    No module is taken from the working folder: it is the user's, and may hold a `typer.py`.
    """
    return ["-P", "-m", name]
