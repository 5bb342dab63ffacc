"""`trainer_state.json` of transformers' Trainer: the rows are in `log_history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from canary.errors import InputError
from canary.imports.entries import Entry, Telling
from canary.imports.files import Found
from canary.imports.readers.json_file import document_in, entries_of_rows

NAME = "trainer_state.json"


def fits(file: Found) -> bool:
    """Whether a file has the name."""
    return file.base == NAME


def read(files: Sequence[Found], telling: Telling) -> Iterator[Entry]:
    """Yield the rows of the newest state: each checkpoint repeats those before it.

    Raises:
        InputError: a file is no such state.
    """
    states = []
    for file in files:
        document = document_in(file, telling)
        rows = document.get("log_history") if isinstance(document, Mapping) else None
        if not isinstance(rows, list):
            raise InputError(f"{file.name} has no list `log_history`", "name a Trainer's state")
        step = document.get("global_step")
        states.append((step if isinstance(step, int) else -1, len(rows), file, rows))
    newest = max(states, key=lambda state: state[:2])
    for state in states:
        if state is not newest:
            telling.tell(
                f"an earlier state than {newest[2].name}, so it was not read", state[2].name
            )
    yield from entries_of_rows(newest[3], telling, newest[2], 0)
