"""What a cell costs, and what a kill does to a matrix: `python -m bench.matrix`.

Runs cells whose command sleeps for 50 ms. Prints the CPU time per cell beside that command's, and
the memory of the process. Then it kills the matrix at random moments and starts it again. Each
cell must have run to its end once, and none twice at once.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import Outcome
from canary.matrix.running import CELLS, Entry, Matrix, alone_in

WORK = (
    'set -e; mkdir "$0/busy"; echo begins >>"$0/seen"; sleep 0.05; '
    'rmdir "$0/busy"; echo ends >>"$0/seen"'
)
KILLS = 20


def run(folder: Path, count: int) -> None:
    """Run a matrix of stand-ins in a folder, and print what it cost."""

    def planned(cell: Cell) -> Attempt:
        notes = folder / "notes" / cell.name
        notes.mkdir(parents=True, exist_ok=True)
        words = ("sh", "-c", WORK, str(notes))
        return Attempt(cell.name, folder / CELLS / cell.name, words, folder, {}, 60.0)

    def judged(cell: Cell, attempt: Attempt) -> Outcome:
        return Outcome("pass" if attempt.ended() == 0 else "error", "")

    cells = [Cell(f"c{number}", "run", None, ()) for number in range(count)]
    launcher = LocalLauncher(sorted(os.sched_getaffinity(0)), (), None, folder / "pool")
    began = time.monotonic()
    with alone_in(folder):
        entries = Matrix(folder, [*map(Entry, cells)], launcher, planned, judged).run()
    right = sum(one.outcome is not None and one.outcome.verdict == "pass" for one in entries)
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    each = [(one.ru_utime + one.ru_stime) / count * 1000 for one in (own, children)]
    print(
        f"{right} of {count} cells in {time.monotonic() - began:.1f} s; CPU time per cell: "
        f"{each[0]:.1f} ms of the matrix, {each[1]:.1f} ms of its children with the stand-in; "
        f"largest memory {own.ru_maxrss / 1024:.0f} MiB"
    )


def stand_in(count: int) -> float:
    """Return the CPU time of the stand-in alone, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            place = Path(scratch) / str(number)
            place.mkdir()
            subprocess.run(["sh", "-c", WORK, str(place)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / count * 1000


def killed(folder: Path, count: int, seed: int) -> None:
    """Kill a matrix at random moments until it is through, and look at what it left."""
    words = [sys.executable, "-m", "bench.matrix", "--into", str(folder), "--cells", str(count)]
    drawn = random.Random(seed)
    for _ in range(KILLS):
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        time.sleep(drawn.uniform(0.2, 1.2))
        child.send_signal(signal.SIGKILL)
        child.wait()
    subprocess.run(words, check=True)
    seen = [(one / "seen").read_text() for one in (folder / "notes").iterdir()]
    once = sum(text == "begins\nends\n" for text in seen)
    print(f"killed {KILLS} times: {once} of {count} cells ran once and to their end")


def main() -> None:
    """Measure, then kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--into", type=Path, help="Run one matrix there, and nothing else.")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.into is not None:
        run(options.into.absolute(), options.cells)
        return
    print(f"the stand-in alone: {stand_in(100):.1f} ms of CPU time")
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch) / "one", options.cells)
        killed(Path(scratch) / "other", options.cells // 2, options.seed)


if __name__ == "__main__":
    main()
