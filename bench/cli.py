"""Start-up of the command line against a bare interpreter: `python -m bench.cli`.

Runs both in turn, so that a slower machine slows both. Prints medians, and the median of the
differences within pairs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from canary.baseline.history import save
from canary.record.folder import load_record

EXAMPLES = Path(__file__).parents[1] / "baselines" / "examples"
RUNS = (str(EXAMPLES / "sft_smoke_again.json"), str(EXAMPLES / "sft_smoke.json"))
STORED = 1000
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "canary --help": (("--help",), 0.25),
    "canary config show": (("config", "show"), 0.25),
    "canary run, a model's path with a typo": (("run", "--set", "model_name=FOLDER/tinny"), 0.3),
    "canary compare, two runs": (("compare", *RUNS), 0.5),
    f"canary compare, {STORED:,} stored runs": (("compare", RUNS[0], "FOLDER/history"), 1.0),
}


def history(folder: Path) -> None:
    """Store the example a thousand times, under different names."""
    record = load_record(RUNS[1])
    for number in range(STORED):
        clock = f"{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        update = {"run_id": f"run-{number:05d}", "timestamp": f"2026-01-01T{clock}"}
        save(folder, record.model_copy(update=update))


def seconds(arguments: tuple[str, ...]) -> float:
    """Return the wall seconds of one process; a red comparison or a refused typo is fine."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True)
    assert done.returncode in (0, 1) or b"did you mean" in done.stderr, done.stderr
    return time.perf_counter() - start


def main() -> None:
    """Print one line per command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=15, help="rounds")
    rounds = parser.parse_args().n
    with tempfile.TemporaryDirectory() as folder:
        history(Path(folder, "history"))
        Path(folder, "tiny").mkdir()
        os.chdir(folder)
        for name, (words, target) in COMMANDS.items():
            arguments = tuple(word.replace("FOLDER", folder) for word in words)
            measure(name, ("-m", "canary.cli", *arguments), target, rounds)


def measure(name: str, arguments: tuple[str, ...], target: float, rounds: int) -> None:
    """Measure one command and print its line."""
    seconds(arguments)
    pairs = [(seconds(("-c", "pass")), seconds(arguments)) for _ in range(rounds)]
    more = sorted(command - bare for bare, command in pairs)
    print(
        f"{name:<40} {statistics.median(c for _, c in pairs):.3f} s, "
        f"bare interpreter {statistics.median(b for b, _ in pairs):.3f} s, "
        f"more {statistics.median(more):.3f} s (min {more[0]:.3f}, max {more[-1]:.3f}), "
        f"target {target} s"
    )


if __name__ == "__main__":
    main()
