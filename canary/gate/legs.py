"""The records of a matrix: each leg, a job with one cell, leaves an artifact; one job may run all.

Only artifacts of cells that the base branch asks for are read. One that holds something else than
its name says is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from canary.errors import RecordError
from canary.gate.asked import Canary
from canary.gate.records import REMEDY, Records

ALL = ""
"""Stands for the artifact of a job that ran all cells."""
INCOMPLETE = "the records are incomplete"


@dataclass(frozen=True)
class Legs:
    """What the training left."""

    cells: tuple[str, ...]
    """What the base branch asks for."""
    found: Mapping[str, Records | RecordError]
    """The records of each cell's artifact, or why they are refused."""

    def of(self, cell: str) -> Records:
        """Return the records that hold a cell.

        Raises:
            RecordError: there are none, they are refused, the cell is in them twice, or it shares
                its folder.
        """
        alone = cell in self.found
        found = self.found[cell] if alone else self.found.get(ALL)
        if found is None:
            raise RecordError(f"the training job of cell {cell} left no record", "read its log")
        if isinstance(found, RecordError):
            raise found
        there = [part.cell for part in found.manifest.parts]
        others = [part.cell or part.config for part in found.manifest.parts if part.cell != cell]
        if alone and others:
            raise RecordError(f"the artifact of cell {cell} holds {others[0]}", REMEDY)
        if self._times(cell) > 1:
            raise RecordError(f"the records hold cell {cell} twice", REMEDY)
        folders = [part.folder for part in found.manifest.parts]
        if any(
            part.cell == cell and folders.count(part.folder) > 1 for part in found.manifest.parts
        ):
            raise RecordError(f"cell {cell} shares its folder with another", REMEDY)
        if found.manifest.error and {*there} >= ({cell} if alone else {*self.cells}):
            raise RecordError(INCOMPLETE, "read the log of the training job")
        return found

    def _times(self, cell: str) -> int:
        every = [one for one in self.found.values() if isinstance(one, Records)]
        return sum(part.cell == cell for one in every for part in one.manifest.parts)

    @property
    def complete(self) -> bool:
        """Whether each cell was trained and left its records."""
        return all(map(self._is_there, self.cells))

    def _is_there(self, cell: str) -> bool:
        try:
            parts = [part for part in self.of(cell).manifest.parts if part.cell == cell]
        except RecordError:
            return False
        return bool(parts) and not parts[0].error


def legs_of(artifact: str, asked: Sequence[Canary], get: Callable[[str], Records | None]) -> Legs:
    """Return what the training of these cells left. `get`: returns the records of an artifact by
    its name, None if there is none; may raise RecordError."""
    found: dict[str, Records | RecordError] = {}
    for cell in (ALL, *(one.cell for one in asked)):
        try:
            records = get(f"{artifact}-{cell}" if cell else artifact)
        except RecordError as problem:
            found[cell] = problem
        else:
            found |= {} if records is None else {cell: records}
    return Legs(tuple(one.cell for one in asked), found)
