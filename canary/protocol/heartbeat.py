"""Files by which each training process reports its identity and position to the watching one.

Each rank writes `rank<r>.pulse.json`. On a signal it writes the stacks of its threads to
`rank<r>.stack`. This needs only the standard library, and the training never waits for it. The
background sampler's newest reading is a file too, for `canary serve`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from canary.record import jsonio

ASK = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + 7
"""The signal that asks for stacks; programs do not use it."""


@dataclass(frozen=True)
class Pulse:
    """One training process."""

    rank: int
    pid: int
    world_size: int
    local_world_size: int

    @property
    def nodes(self) -> int:
        """Machines, or agents, that share the ranks equally."""
        return max(1, self.world_size // max(1, self.local_world_size))


def pulse_path(scratch: Path, rank: int) -> Path:
    return scratch / f"rank{rank}.pulse.json"


def stack_path(scratch: Path, rank: int) -> Path:
    return scratch / f"rank{rank}.stack"


def leave_pulse(scratch: Path, rank: int, world_size: int) -> Pulse:
    """Register this process as `rank`; from now on ASK makes it write its stacks."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    pulse = Pulse(rank, os.getpid(), world_size, local)
    # It stays open while the process lives: the handler writes to the descriptor.
    stream = stack_path(scratch, rank).open("w")
    faulthandler.register(ASK, file=stream, all_threads=True, chain=False)
    _kept.append(stream)
    jsonio.replace_file(pulse_path(scratch, rank), jsonio.dumps(asdict(pulse)))
    return pulse


_kept: list[object] = []


def read_pulses(scratch: Path) -> dict[int, Pulse]:
    """Return the registered processes by rank."""
    found = (Pulse(**jsonio.loads(p.read_text())) for p in scratch.glob("rank*.pulse.json"))
    return {pulse.rank: pulse for pulse in sorted(found, key=lambda pulse: pulse.rank)}


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


def main_thread(text: str) -> list[Frame]:
    """Return the main thread's stack from `faulthandler`'s text, innermost frame first."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif threads and (match := FRAME.match(line)):
            threads[-1].append(Frame(match[1], int(match[2]), match[3]))
    # Every thread except the main one starts in the threading module.
    main = [stack for stack in threads if stack and stack[-1].function != "_bootstrap"]
    return main[-1] if main else []


def place(stack: list[Frame]) -> str:
    """Return the innermost line of the user's code as text; empty for an unknown stack."""
    here = str(Path(__file__).parents[1]) + os.sep
    users = [f for f in stack if "site-packages" not in f.file and not f.file.startswith(here)]
    users = [f for f in users if not f.file.startswith("<")]
    frame = next(iter([f for f in users if "/lib/python" not in f.file] or users or stack), None)
    return "" if frame is None else f"{frame.file}:{frame.line} in {frame.function}"


def reading_path(scratch_dir: Path) -> Path:
    """Return the file of a launch's newest reading."""
    return scratch_dir / "reading.json"


class Readings:
    """Passes each new reading on once, and also writes it to `file`."""

    def __init__(self, source: Callable[[], Mapping[str, float]], file: Path) -> None:
        self._source = source
        self._file = file
        self._last: Mapping[str, float] = {}

    def fresh(self) -> Mapping[str, float] | None:
        """Return the newest reading, or None if there is no new one since the last call."""
        reading = self._source()
        if not reading or reading is self._last:
            return None
        self._last = reading
        # The training goes on if the disk is full or the folder was removed.
        with contextlib.suppress(OSError):
            jsonio.replace_file(self._file, jsonio.dumps(dict(reading)))
        return reading
