"""Start-up of the command line against a bare interpreter: `python -m bench.cli`.

Runs the commands in turn, so that a machine that slows down slows all of them, and prints medians
and the median of the differences, pair by pair.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "canary --help": ("-m", "canary.cli", "--help"),
    "canary config show": ("-m", "canary.cli", "config", "show"),
}
TARGET_S = 0.25


def seconds(arguments: tuple[str, ...]) -> float:
    """Wall seconds of one process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Prints one line a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=15, help="rounds")
    rounds = parser.parse_args().n
    for name, arguments in COMMANDS.items():
        seconds(arguments)
        pairs = [(seconds(("-c", "pass")), seconds(arguments)) for _ in range(rounds)]
        more = sorted(command - bare for bare, command in pairs)
        print(
            f"{name:<20} {statistics.median(c for _, c in pairs):.3f} s, "
            f"bare interpreter {statistics.median(b for b, _ in pairs):.3f} s, "
            f"more {statistics.median(more):.3f} s (min {more[0]:.3f}, max {more[-1]:.3f}), "
            f"target {TARGET_S} s"
        )


if __name__ == "__main__":
    main()
