"""Forked (warm) launches against launches that import everything (cold): `python -m bench.warm`.

Runs `canary run` both ways in turn. Prints wall and CPU seconds of each pair, the medians of the
ratios, and whether records agree: losses bit for bit, exact signals, resident memory.
`--cold PYTHON` uses another checkout's Python for cold launches; `--ab` runs `ab --pairs 3`. With
`--ab`, CPU seconds do not include the forks: the warm Python outlives the command that started it.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.runner.warm import WARM_FOLDER

CONFIG = Path(__file__).parents[1] / "configs" / "dpo_smoke.yaml"


class Timed(NamedTuple):
    """One command: wall seconds, CPU seconds including processes it waited for, and its records."""

    wall_s: float
    cpu_s: float
    records: list[RunRecord]


def timed(python: str, folder: Path, *, warm: bool, ab: bool) -> Timed:
    """Run the default canary, or three pairs of it, in `folder`."""
    # With a missing path no launch finds a warm Python to fork.
    environment = {**os.environ} if warm else {**os.environ, WARM_FOLDER: "/nowhere"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    words = ["run", "--quiet"]
    if ab:
        for name in ("base.yaml", "head.yaml"):
            (folder / name).write_text(CONFIG.read_text())
        words = ["ab", "--base-config", "base.yaml", "--head-config", "head.yaml"]
        words += ["--pairs", "3", "--quiet"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = folder / "out"
    done = subprocess.run(
        [python, "-m", "canary.cli", *words, "-o", str(out)],
        env=environment,
        cwd=folder,  # else both ways would import this checkout's code
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1, 3), done.stderr
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = sorted(out.rglob("metrics.json"))
    return Timed(wall, cpu, [load_record(file) for file in found])


def agreement(warm: RunRecord, cold: RunRecord) -> str:
    """Return in words how two records agree."""
    exact = {
        key for key in {*warm.exact, *cold.exact} if warm.exact.get(key) != cold.exact.get(key)
    }
    losses = warm.stability.loss_values == cold.stability.loss_values
    memory = [record.memory.peak_rss_bytes or 0 for record in (warm, cold)]
    return (
        f"losses {'equal' if losses else 'DIFFER'}, exact "
        f"{'equal' if not exact else 'differs in ' + ', '.join(sorted(exact))}, peak "
        f"{memory[0] / 1e6:.0f} and {memory[1] / 1e6:.0f} MB, step "
        f"{1e3 * warm.perf.step_time.median:.1f} and {1e3 * cold.perf.step_time.median:.1f} ms"
    )


def main() -> None:
    """Print a line per pair, warm first, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="pairs")
    parser.add_argument("--cold", default=sys.executable, help="Python for cold launches")
    parser.add_argument("--ab", action="store_true")
    asked = parser.parse_args()
    ratios: list[tuple[float, float]] = []
    for number in range(asked.n):
        found: dict[bool, Timed] = {}
        for warm in (True, False) if number % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                python = sys.executable if warm else asked.cold
                found[warm] = timed(python, Path(folder), warm=warm, ab=asked.ab)
        mine, other = found[True], found[False]
        ratios.append((mine.wall_s / other.wall_s, mine.cpu_s / other.cpu_s))
        print(
            f"wall {mine.wall_s:.1f} and {other.wall_s:.1f} s, CPU {mine.cpu_s:.1f} and "
            f"{other.cpu_s:.1f} s; {agreement(mine.records[0], other.records[0])}",
            flush=True,
        )
    wall, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"median of the ratios: wall {wall:.2f}, CPU {cpu:.2f}")


if __name__ == "__main__":
    main()
