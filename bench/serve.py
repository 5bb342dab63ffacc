"""`canary serve` on large runs: answers, delays, CPU and memory: `python -m bench.serve`.

Trains the default canary once. Its rows become 50 finished runs of 10,000 steps, and one run that
goes on: another process appends 40 rows per second to it and renews its record, as `canary run`
does. The delay of a row ends when a page that counts it has been received.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from canary.record import jsonio
from canary.record.folder import RunFolder, load_record, new_run_id, this_process
from canary.record.step_row import Row
from canary.record.summary import percentile, summarise_ranks
from canary.record.types import RunRecord
from canary.serve.live import EVERY_MS

RUNS, STEPS, PER_SECOND = 50, 10_000, 40
GOING = "going"


def trained(folder: Path) -> tuple[RunRecord, list[Row]]:
    """Train the default canary. Return its record and its rows."""
    command = [sys.executable, "-m", "canary.cli", "run", "--quiet", "-o", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    run = RunFolder(Path(done.stdout.strip()))
    rows, _ = jsonio.rows_since(run.steps, 0)
    return load_record(run.path), rows


def repeated(rows: Sequence[Row], first: int, count: int) -> list[Row]:
    """Real rows again and again, as the steps from `first` on."""
    places = range(first, first + count)
    return [{**rows[step % len(rows)], "step": step, "time": time.time()} for step in places]


def text_of(rows: Sequence[Row]) -> str:
    """Rows as `steps.jsonl` has them."""
    return "".join(f"{jsonio.dumps(row)}\n" for row in rows)


def stored(root: Path, record: RunRecord, rows: Sequence[Row]) -> RunFolder:
    """Write the finished runs and the one that goes on. Return the latter."""
    long = repeated(rows, 1, STEPS)
    record = record.model_copy(update={"config": {**record.config, "max_steps": STEPS}})
    whole = summarise_ranks(record, {0: long}, 10)
    text = text_of(long)
    for _ in range(RUNS):
        name = new_run_id(record.name, datetime.now(UTC))
        folder = RunFolder.create(root, name)
        folder.steps.write_text(text, encoding="utf-8")
        folder.finish(whole.model_copy(update={"run_id": name}))
    folder = RunFolder.create(root, GOING)
    folder.steps.write_text(text, encoding="utf-8")
    going = {"run_id": GOING, "status": "running", "owner": this_process()}
    folder.write(whole.model_copy(update=going))
    (root / "rows.json").write_text(jsonio.dumps(rows))
    return folder


def write(folder: RunFolder) -> None:
    """Append rows without end, and renew the record every second."""
    rows = jsonio.loads((folder.path.parent / "rows.json").read_bytes())
    record, all_rows = load_record(folder.path), jsonio.rows_since(folder.steps, 0)[0]
    start, renewed = time.monotonic(), time.monotonic()
    with folder.steps.open("a", encoding="utf-8") as stream:
        for number in range(sys.maxsize):
            time.sleep(max(0.0, start + number / PER_SECOND - time.monotonic()))
            new = repeated(rows, STEPS + 1 + number, 1)
            stream.write(text_of(new))
            stream.flush()
            print(time.time(), flush=True)
            all_rows += new
            if time.monotonic() - renewed > 1:
                renewed = time.monotonic()
                folder.write(summarise_ranks(record, {0: all_rows}, 10))


@dataclass
class Viewer:
    """Asks for one page again and again, as its script does, until it is told to stop."""

    url: str
    counted: list[tuple[float, int]] = field(default_factory=list)
    """When a page came, and how many steps it counts."""
    drawn: list[tuple[float, int]] = field(default_factory=list)
    """When charts came, and their last step."""
    stops: bool = False

    def __enter__(self) -> Viewer:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stops = True
        self._thread.join()

    def _read(self) -> None:
        while not self.stops:
            with urllib.request.urlopen(self.url) as answer:
                self._note(answer.read().decode(), time.time())
            time.sleep(EVERY_MS / 1000)

    def _note(self, page: str, now: float) -> None:
        if found := re.search(r"<dd>(\d+) of ", page):
            self.counted.append((now, int(found[1])))
        if found := re.search(r'id="numbers-loss">(.*?)</script>', page, re.DOTALL):
            self.drawn.append((now, json.loads(found[1])["rows"][-1][0]))


def delays(pages: Sequence[tuple[float, int]], written: Sequence[float]) -> list[float]:
    """Seconds from the writing of each row until the first page that has it."""
    counts = [count for _, count in pages]
    found = []
    for number, at in enumerate(written, start=STEPS + 1):
        place = bisect_left(counts, number)
        if pages and counts[0] < number and place < len(pages):
            found.append(pages[place][0] - at)
    return found


def shown(values: Sequence[float]) -> str:
    """Median and 95th percentile."""
    ordered = sorted(values)
    return (
        f"{statistics.median(ordered):.2f} s, 95% within {percentile(ordered, 0.95):.2f} s "
        f"({len(ordered)} rows)"
    )


def first_byte(url: str) -> float:
    """Seconds until the first byte of an answer."""
    start = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        answer.read(1)
        seconds = time.perf_counter() - start
        answer.read()
    return seconds


def answers(name: str, url: str, rounds: int = 9) -> None:
    """Print the seconds of the first answer, and the median of later ones."""
    first = first_byte(url)
    later = statistics.median(first_byte(url) for _ in range(rounds))
    print(f"first byte of {name}: {first:.3f} s at first, later {later:.3f} s", flush=True)


def cost(server: psutil.Process, what: str, seconds: float) -> None:
    """Print the server's share of one core over some seconds, and its memory."""
    before = server.cpu_times()
    time.sleep(seconds)
    after = server.cpu_times()
    used = after.user + after.system - before.user - before.system
    memory = server.memory_info().rss / 2**20
    print(f"{what}: {100 * used / seconds:.1f}% of one core, {memory:.0f} MB", flush=True)


def measured(root: Path, folder: RunFolder, seconds: float) -> None:
    """Serve the folder and print everything."""
    command = [sys.executable, "-m", "canary.cli", "serve", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            look(found[0], root, psutil.Process(process.pid), folder, seconds)
        finally:
            process.terminate()


def look(url: str, root: Path, server: psutil.Process, folder: RunFolder, seconds: float) -> None:
    """Ask a server for its pages and look at them, while rows are written."""
    ended = next(path.name for path in sorted(root.iterdir()) if path.name.startswith("2"))
    cost(server, "before the first page", 1)
    answers("the list", url)
    answers("an ended run", f"{url}run/{ended}")
    writer = [sys.executable, "-m", "bench.serve", "--write", str(folder.path)]
    with subprocess.Popen(writer, stdout=subprocess.PIPE, text=True) as writing:
        try:
            written = _lines_of(writing)
            time.sleep(5)
            answers("the run that goes on", f"{url}run/{folder.path.name}")
            with Viewer(f"{url}run/{folder.path.name}") as viewer:
                time.sleep(5)
                cost(server, "one viewer of the run", seconds)
                print(f"a row is counted after {shown(delays(viewer.counted, written))}")
                print(f"a row is in the charts after {shown(delays(viewer.drawn, written))}")
            with Viewer(url):
                cost(server, "one viewer of the list", seconds)
            time.sleep(12)
            cost(server, "nobody", seconds)
        finally:
            writing.kill()


def _lines_of(process: subprocess.Popen[str]) -> list[float]:
    """The numbers that a process prints, which become more."""
    found: list[float] = []

    def read(take: Callable[[float], None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            take(float(line))

    threading.Thread(target=read, args=(found.append,), daemon=True).start()
    return found


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-s", type=float, default=60, help="seconds of each measurement")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        write(RunFolder(arguments.write))
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "runs"
        folder = stored(root, *trained(Path(scratch) / "trained"))
        measured(root, folder, arguments.s)


if __name__ == "__main__":
    main()
