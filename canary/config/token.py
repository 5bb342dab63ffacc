"""A secret that no text shows by accident: not a log, an error, a `repr` or a pickle."""

from __future__ import annotations

import base64
import os
from collections.abc import MutableMapping
from typing import NoReturn
from urllib.parse import quote, quote_plus

from canary.errors import UsageError

VARIABLE = "CANARY_TOKEN"
PIPE = "CANARY_TOKEN_FD"
"""Number of an open file that holds the token, for a process whose environment must not."""
SHOWN = "***"
USER = "x-access-token"
"""The user name under which GitHub takes a token by HTTP's basic authorization."""


class Token:
    """A token; an empty one is false and stands for none."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value.strip()

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token is not copied to where it could be read")

    def reveal(self) -> str:
        """The text itself, for the one call that needs it."""
        return self._value

    def basic(self) -> str:
        """The credentials of a basic authorization."""
        return base64.b64encode(f"{USER}:{self._value}".encode()).decode()

    def scrub(self, text: str) -> str:
        """The text without the token, as it stands or as it travels: in base64 or in a URL."""
        if not self._value:
            return text
        alone = base64.b64encode(self._value.encode()).decode()
        forms = {self._value, quote(self._value, safe=""), quote_plus(self._value)}
        # The longest first: a shorter form may be a part of it.
        for form in sorted(forms | {self.basic(), alone, alone.rstrip("=")}, key=len)[::-1]:
            text = text.replace(form, SHOWN)
        return text


def take_token(environ: MutableMapping[str, str]) -> Token:
    """The token that this process was given. Takes it out of the environment, so that no process
    that is started later has it.

    Raises:
        UsageError: it was to come from a file that is not open.
    """
    value, number = environ.pop(VARIABLE, ""), environ.pop(PIPE, "")
    if value or not number:
        return Token(value)
    try:
        with os.fdopen(int(number), encoding="utf-8") as stream:
            return Token(stream.read())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{PIPE} is {number!r}, which is not a file with a token", f"set {VARIABLE} instead"
        ) from error
