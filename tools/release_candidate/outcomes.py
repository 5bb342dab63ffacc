"""What was checked, with its result: the table of a release candidate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "failed", "not run"]


class CheckFailed(Exception):
    """A check found a fault; its text says which."""


@dataclass
class Outcome:
    """One row of the table."""

    check: str
    status: Status
    details: str = ""
    seconds: float = 0.0


class Ledger:
    """Collects outcomes and prints each one as soon as it is known."""

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self.outcomes: list[Outcome] = []
        self._say = say

    @contextmanager
    def check(self, name: str) -> Iterator[Outcome]:
        """Run the body as one check, which may set `details`. An exception makes it fail."""
        outcome = Outcome(name, "ok")
        began = time.monotonic()
        try:
            yield outcome
        except (CheckFailed, OSError, ValueError) as error:
            outcome.status, outcome.details = "failed", str(error)
        outcome.seconds = time.monotonic() - began
        self._add(outcome)

    def find(self, name: str, problems: Sequence[str], details: str = "") -> None:
        """Add a check that fails if there are problems."""
        found = "; ".join(problems)
        self._add(Outcome(name, "failed" if found else "ok", found or details))

    def skip(self, name: str, why: str) -> None:
        """Add a check that could not run."""
        self._add(Outcome(name, "not run", why))

    @property
    def failed(self) -> list[Outcome]:
        """The checks that found a fault."""
        return [one for one in self.outcomes if one.status == "failed"]

    @property
    def skipped(self) -> list[Outcome]:
        """The checks that could not run."""
        return [one for one in self.outcomes if one.status == "not run"]

    def table(self) -> str:
        """Return all outcomes as a Markdown table."""
        rows = ["| check | result | seconds | details |", "|---|---|---|---|"]
        for one in self.outcomes:
            shown = f"{one.seconds:.0f}" if one.seconds >= 0.5 else ""
            details = one.details.replace("|", "\\|").replace("\n", " ")
            rows.append(f"| {one.check} | {one.status} | {shown} | {details} |")
        return "\n".join(rows) + "\n"

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._say(f"{outcome.status:8}{outcome.check}: {outcome.details}".rstrip(": "))
