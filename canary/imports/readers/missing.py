"""The error for a package that reads a format and is not installed."""

from __future__ import annotations

from canary.errors import InputError


def missing(what: str, package: str) -> InputError:
    """Return the error; `package` as pip names it."""
    return InputError(
        f"{what} need the package {package.split('>')[0]}, which is not installed",
        f"pip install {package}",
    )
