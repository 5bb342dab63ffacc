"""All errors that users can see, each with a hint and an exit code; and words for any text.

CanaryError
├── UsageError              2  wrong usage, config or input
│   ├── ConfigError            a config file or key
│   └── InputError             a model, dataset or record that is missing or cannot be used
│       └── RecordError     4  a record that exists but cannot be read
└── MachineError            4  a problem of the machine: memory, disk, time, a device
    └── RunFailed              the training failed; carries the record's status
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_ERROR = 4
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
UNWRITABLE = (*DISK_FULL, errno.EROFS)
"""The disk is full or read-only."""
LONGEST_SHOWN = 240
"""Characters of a record's text that are shown."""


def printable(text: str) -> str:
    """Return the text on one line, without control characters for a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def cut(text: str, most: int = LONGEST_SHOWN) -> str:
    """Return at most `most` characters of a text; `…` marks a cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def nearest(given: object, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to the given one; None if all differ too much."""
    import difflib  # Imported here because only a command that fails needs it.

    return next(iter(difflib.get_close_matches(str(given), list(known), n=1)), None)


def did_you_mean(near: object | None, otherwise: str | None = None) -> str | None:
    """Return the hint "did you mean ..."; `otherwise` if `near` is None."""
    return otherwise if near is None else f"did you mean '{near}'?"


REPLACED = {
    "probe_steps": "look_steps",
    "tier": "thresholds.base_tier",
    "repeats: 0": "exact: true",
    "--no-probe": "--set look_steps=0",
}
"""A name, option or line of a config that went -> what replaces it."""


def replaced(given: str) -> str | None:
    """Return the hint "write ... instead" for a name that went; None for any other."""
    now = REPLACED.get(given)
    return None if now is None else f"write `{now}` instead"


class CanaryError(Exception):
    """Base of all errors, which users see as one line: `message` (what and where), `hint` (what to
    do about it)."""

    exit_code: int = EXIT_ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        # A stranger may have chosen file names and the texts of a record.
        return printable(f"{self.message} ({self.hint})" if self.hint else self.message)


class Stopped(KeyboardInterrupt):
    """The signal `number` ended this process; `code`: how the command that got it too ended."""

    def __init__(self, number: int, code: int | None = None) -> None:
        super().__init__()
        self.number = number
        self.code = code


class UsageError(CanaryError):
    """Wrong usage, config or input: exit code 2."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A config cannot be used; `file` and `key` say where."""

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
    """A model, dataset or record is missing or cannot be used."""


class RecordError(InputError):
    """A record exists but cannot be judged: not readable, or not a record. Exit code 4."""

    exit_code = EXIT_ERROR


class MachineError(CanaryError):
    """A problem of the machine (memory, disk, time, a device): exit code 4."""

    exit_code = EXIT_ERROR


@contextlib.contextmanager
def writing(path: Path, hint: str) -> Iterator[None]:
    """Say which file cannot be written. `hint`: what to do, unless the disk is full.

    Raises:
        MachineError: an OSError was raised inside.
    """
    try:
        yield
    except OSError as error:
        hint = "free some space on its disk" if error.errno in DISK_FULL else hint
        raise MachineError(f"cannot write {path}: {error.strerror or error}", hint) from error


def not_written(what: str, error: OSError) -> MachineError:
    """Return the error for a file that a job cannot write on its runner."""
    if error.errno in DISK_FULL:
        return MachineError("the runner's disk is full", "free some space and run the job again")
    why = error.strerror or type(error).__name__
    return MachineError(
        f"cannot write {what} on the runner: {why}", "let the runner's user write there"
    )


class RunFailed(MachineError):
    """A canary did not complete; `status` is the record's."""

    def __init__(self, message: str, status: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.status = status
