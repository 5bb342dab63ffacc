"""A token that cannot leak by accident into a log, an error, a `repr` or a pickle."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import MutableMapping
from typing import NoReturn
from urllib.parse import quote, quote_plus

from canary.errors import UsageError

VARIABLE = "CANARY_TOKEN"
PIPE = "CANARY_TOKEN_FD"
"""Number of an open file with the token, for a process whose environment must not hold it."""
SHOWN = "***"
USER = "x-access-token"
"""The user name that GitHub expects with a token in HTTP basic authorization."""
USER_VARIABLE = "CANARY_TOKEN_USER"
"""Another user name: GitLab takes the token of a job only from `gitlab-ci-token`."""
USER_NAME = re.compile(r"[\w.@+-]{1,255}", re.ASCII)


class Token:
    """A token; an empty token means that there is no token, and is false.

    `user`: the user name that the server expects with it.

    Raises:
        UsageError: the user name has characters that no user name has.
    """

    __slots__ = ("_user", "_value")

    def __init__(self, value: str = "", user: str = USER) -> None:
        if not USER_NAME.fullmatch(user):
            raise UsageError(
                f"{USER_VARIABLE} is {user!r}, which is not a user name",
                "use letters, digits, and the signs . _ @ + -",
            )
        self._value = value.strip()
        self._user = user

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Token):
            return False
        return (other._user, other._value) == (self._user, self._value)

    def __hash__(self) -> int:
        return hash((self._user, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token cannot be pickled or copied")

    def reveal(self) -> str:
        """Return the token as text, for the one call that needs it."""
        return self._value

    def basic(self) -> str:
        return base64.b64encode(f"{self._user}:{self._value}".encode()).decode()

    def scrub(self, text: str) -> str:
        """Replace the token in a text by `***`: as plain text, in base64 and in a URL."""
        if not self._value:
            return text
        alone = base64.b64encode(self._value.encode()).decode()
        forms = {self._value, quote(self._value, safe=""), quote_plus(self._value)}
        # Longest first: a shorter form may be part of a longer one.
        for form in sorted(forms | {self.basic(), alone, alone.rstrip("=")}, key=len)[::-1]:
            text = text.replace(form, SHOWN)
        return text


def take_token(environ: MutableMapping[str, str]) -> Token:
    """Return this process's token and remove it from the environment that children inherit.

    Raises:
        UsageError: `CANARY_TOKEN_FD` does not name an open file.
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
