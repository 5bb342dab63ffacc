"""Run folders as they are during and after a run, and a server that shows them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from canary.record import jsonio
from canary.record.folder import RunFolder, start_record, this_process
from canary.record.ranks import rank_path
from canary.record.step_row import Row
from canary.record.types import Launch, Owner, RunRecord
from canary.serve.server import bound, serve
from tests.unit.comparing import record
from tests.unit.pages.making import rows


def finished(
    root: Path, number: int, *, steps: int = 20, name: str = "", **given: Any
) -> RunFolder:
    """A completed run with its steps."""
    made = record(number, **given)
    made.run_id = name or f"20260101-{number:06d}-sft_smoke-{number:04x}"
    folder = RunFolder.create(root, made.run_id)
    add_rows(folder, rows(steps))
    folder.finish(made)
    return folder


def running(
    root: Path,
    name: str = "20260301-080000-dpo_smoke-00aa",
    *,
    steps: int = 100,
    exact: bool = False,
) -> RunFolder:
    """A run of this process that goes on and has no rows yet."""
    folder = RunFolder.create(root, name)
    config = {"max_steps": steps, "look_steps": 12, "training_type": "dpo", "exact": exact}
    made = start_record(name, "dpo_smoke", datetime.now(UTC), config)
    made.launches = [Launch(index=1, status="running")]
    folder.write(made)
    return folder


def add_rows(folder: RunFolder, made: Iterable[Row], *, rank: int = 0) -> None:
    """Append rows as the training process does."""
    with rank_path(folder.steps, rank).open("a", encoding="utf-8") as stream:
        stream.writelines(f"{jsonio.dumps(row)}\n" for row in made)


def rows_between(first: int, last: int) -> Sequence[Row]:
    """Rows of these steps, written now."""
    return [{**row, "time": time.time()} for row in rows(last)[first - 1 :]]


def rewrite(folder: RunFolder, **update: Any) -> RunRecord:
    """Change a run's record on disk."""
    known = jsonio.loads(folder.metrics.read_bytes())
    changed = RunRecord.model_validate(known).model_copy(update=update)
    folder.write(changed)
    return changed


def of_the_dead() -> Owner:
    """A process of this machine that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return this_process().model_copy(update={"pid": done.pid, "started": 1.0})


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Every file of a folder with its time and size."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in found
    }


@contextmanager
def serving(root: Path, *, port: int = 0) -> Iterator[str]:
    """The address of `canary serve` in a thread of this process, whose priority stays."""
    addresses: SimpleQueue[str] = SimpleQueue()
    servers: list[ThreadingHTTPServer] = []

    def kept(folder: Path, port: int) -> ThreadingHTTPServer:
        servers.append(bound(folder, port))
        return servers[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("canary.serve.server.bound", kept)
        patch.setattr("os.nice", lambda _: 0)
        thread = threading.Thread(target=serve, args=(root, port, addresses.put))
        thread.start()
        try:
            yield addresses.get(timeout=30)
        finally:
            for server in servers:
                server.shutdown()
            thread.join()
