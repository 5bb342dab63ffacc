"""A matrix of stand-ins in a queue, also as a program that can be killed.

`python -m tests.integration.matrix.stand_ins slurm|ray FOLDER CELLS [ADDRESS]` prints how many
cells ended well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.outcomes import Outcome, outcome_of
from canary.matrix.running import CELLS, Entry, Launcher, Matrix, alone_in

WORK = (
    'set -e; mkdir "$0/busy"; echo begins >>"$0/seen"; sleep 0.3; '
    'rmdir "$0/busy"; echo ends >>"$0/seen"'
)
"""Fails if it runs twice at once, or after it was stopped in the middle."""


def cells(count: int) -> list[Cell]:
    """Return cells; what they run is up to `planned`."""
    return [Cell(f"c{number}", "run", None, ()) for number in range(count)]


def judged(cell: Cell, attempt: Attempt) -> Outcome:
    """Return what is said of a try; exit code 0 is all that a stand-in must do."""
    if attempt.ended() == 0:
        starts = attempt.starts()
        return Outcome("pass", "" if starts < 2 else f"started {starts} times", seconds=1.0)
    return outcome_of(cell, attempt, None, save_to=False)


def matrix_of(
    folder: Path,
    launcher: Launcher,
    of: Callable[[Cell], Attempt],
    count: int = 1,
) -> Matrix:
    """Return a matrix of stand-ins. `of`: returns the try of a cell."""
    return Matrix(folder, [*map(Entry, cells(count))], launcher, of, judged)


def busy(folder: Path, cell: Cell) -> Attempt:
    """Return a try that notes in a folder of its cell when it runs."""
    notes = folder / "notes" / cell.name
    notes.mkdir(parents=True, exist_ok=True)
    words = ("sh", "-c", WORK, str(notes))
    return Attempt(cell.name, folder / CELLS / cell.name, words, folder, {}, 60.0)


def main() -> None:
    """Run a matrix."""
    kind, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if kind == "slurm":
        from tests.integration.matrix.slurm_cluster import launcher as slurm

        queue = slurm(folder)
    else:
        from tests.integration.matrix.ray_cluster import launcher as ray

        queue = ray(sys.argv[4])
    with alone_in(folder):
        matrix = matrix_of(folder, queue, lambda cell: busy(folder, cell), count)
        entries = matrix.run()
    print(sum(one.outcome is not None and one.outcome.verdict == "pass" for one in entries))


if __name__ == "__main__":
    main()
