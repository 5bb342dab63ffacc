"""The tree of errors that a user can meet; each carries a hint and the exit code of the process.

CanaryError
├── UsageError              2  wrong usage, config or input
│   ├── ConfigError            a config file or key
│   └── InputError             a model, dataset or record that was named but cannot be used
│       └── RecordError     4  a record that is there but is not readable as one
└── MachineError            4  the machine could not do it: memory, disk, time, a device
    └── RunFailed              the training itself ended badly; carries the record's status
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_ERROR = 4
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def printable(text: str) -> str:
    """On one line, with nothing in it that steers a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def nearest(given: object, known: Iterable[str]) -> str | None:
    """The known name that comes closest to the given one; None where none is close."""
    import difflib  # Here: only a command that fails needs it.

    return next(iter(difflib.get_close_matches(str(given), list(known), n=1)), None)


def did_you_mean(near: object | None, otherwise: str | None = None) -> str | None:
    """The hint that asks for what was meant; `otherwise` where that is None."""
    return otherwise if near is None else f"did you mean '{near}'?"


class CanaryError(Exception):
    """Base of all errors shown to users as one line.

    `message` says what was wrong and where; `hint` says what to do about it.
    """

    exit_code: int = EXIT_ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        # Names of files and texts of a record are a stranger's.
        return printable(f"{self.message} ({self.hint})" if self.hint else self.message)


class Stopped(KeyboardInterrupt):
    """Ended from outside by the signal `number`; `code` is how a command that was told so ended."""

    def __init__(self, number: int, code: int | None = None) -> None:
        super().__init__()
        self.number = number
        self.code = code


class UsageError(CanaryError):
    """Wrong usage, config or input: exit code 2."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A config that cannot be used; `file` and `key` say where."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        file: str | Path | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.file = file
        self.key = key


class InputError(UsageError):
    """A model, dataset or record that was named but is missing or not usable."""


class RecordError(InputError):
    """A record that is there but cannot be judged: not readable, or not a record. Exit code 4."""

    exit_code = EXIT_ERROR


class MachineError(CanaryError):
    """The machine could not do it (memory, disk, time, a device): exit code 4."""

    exit_code = EXIT_ERROR


def not_written(what: str, error: OSError) -> MachineError:
    """The error of a file that a job cannot write on its runner."""
    if error.errno in DISK_FULL:
        return MachineError("the runner's disk is full", "free some space and run the job again")
    why = error.strerror or type(error).__name__
    return MachineError(
        f"cannot write {what} on the runner: {why}", "let the runner's user write there"
    )


class RunFailed(MachineError):
    """A canary that ended without completing; `status` is the record's."""

    def __init__(self, message: str, status: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.status = status
