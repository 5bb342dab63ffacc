"""Reports: seconds to write them, bytes, and seconds to the first chart: `python -m bench.report`.

Trains the default canary twice for a comparison with all its charts, and stores 1,000 runs for a
history. Prints medians over the rounds. The browser is Chromium without a window, on a file.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.cli import STORED, history

CHART = "document.querySelector('figure svg') ? performance.now() / 1000 : null"


def written(*words: str) -> float:
    """Return the wall seconds of `canary report`."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "canary.cli", "report", *words]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def trained(folder: Path) -> list[str]:
    """Run the default canary twice, and return the folders of the runs."""
    command = [sys.executable, "-m", "canary.cli", "run", "--quiet", "-o", str(folder)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(2)]
    return [run.stdout.strip() for run in runs]


def first_chart(page: Path, rounds: int) -> float:
    """Return the median seconds from the start of loading until the first chart is painted."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(rounds):
            opened = browser.new_page()
            opened.goto(page.as_uri())
            assert opened.evaluate(CHART)
            entry = "performance.getEntriesByName('first-contentful-paint')[0]"
            while opened.evaluate(f"{entry} === undefined"):
                opened.wait_for_timeout(5)
            found.append(opened.evaluate(f"{entry}.startTime") / 1000)
            opened.close()
        browser.close()
    return statistics.median(found)


def main() -> None:
    """Print one line per page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=7, help="rounds")
    rounds = parser.parse_args().n
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        history(folder / "history")
        before, now = trained(folder / "out")
        for name, words in (
            ("a comparison", (now, before)),
            ("a run", (now,)),
            (f"a history of {STORED:,} runs", (str(folder / "history"),)),
        ):
            page = folder / "page.html"
            times = [written(*words, "-o", str(page)) for _ in range(rounds)]
            print(
                f"{name}: written in {statistics.median(times):.2f} s ({min(times):.2f} to "
                f"{max(times):.2f}), {page.stat().st_size / 1e3:.0f} kB, first chart after "
                f"{first_chart(page, rounds):.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
