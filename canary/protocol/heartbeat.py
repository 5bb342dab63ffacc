"""What each training process leaves for the one that watches it: who it is, and where it stands.

A file a rank, `rank<r>.pulse.json`; and, once asked by a signal, the stacks of its threads in
`rank<r>.stack`. Needs nothing but the standard library, and nothing of the training waits for it.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from canary.record import jsonio

ASK = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + 7
"""The signal that asks for stacks: one that programs do not use for themselves."""


@dataclass(frozen=True)
class Pulse:
    """One training process."""

    rank: int
    pid: int
    world_size: int
    local_world_size: int

    @property
    def nodes(self) -> int:
        """Machines, or agents, that the ranks are spread over; all alike."""
        return max(1, self.world_size // max(1, self.local_world_size))


def pulse_path(scratch: Path, rank: int) -> Path:
    return scratch / f"rank{rank}.pulse.json"


def stack_path(scratch: Path, rank: int) -> Path:
    return scratch / f"rank{rank}.stack"


def leave_pulse(scratch: Path, rank: int) -> Pulse:
    """Names this process as `rank`; from here on it can be asked where it stands."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    pulse = Pulse(rank, os.getpid(), world_size, local)
    # Kept open for the life of the process: the handler writes to the descriptor.
    stream = stack_path(scratch, rank).open("w")
    faulthandler.register(ASK, file=stream, all_threads=True, chain=False)
    _kept.append(stream)
    jsonio.replace_file(pulse_path(scratch, rank), jsonio.dumps(asdict(pulse)))
    return pulse


_kept: list[object] = []


def read_pulses(scratch: Path) -> dict[int, Pulse]:
    """The processes that named themselves, by rank."""
    found = (Pulse(**jsonio.loads(p.read_text())) for p in scratch.glob("rank*.pulse.json"))
    return {pulse.rank: pulse for pulse in sorted(found, key=lambda pulse: pulse.rank)}


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')
WAITING_FILES = ("torch/distributed/", "accelerate/utils/operations.py")
WAITING_FUNCTIONS = (
    "_engine_run_backward",
    "_pre_forward",
    "_sync_buffers",
    "_distributed_broadcast_coalesced",
)
"""Where Python stands while a process group waits: in a collective of its own, or in the backward
pass, whose end waits for the gradients of the others."""
INNERMOST = 4


def main_thread(text: str) -> list[Frame]:
    """The stack of the main thread, innermost frame first, of what `faulthandler` wrote."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif threads and (match := FRAME.match(line)):
            threads[-1].append(Frame(match[1], int(match[2]), match[3]))
    # Every thread but the main one begins in the threading module.
    main = [stack for stack in threads if stack and stack[-1].function != "_bootstrap"]
    return main[-1] if main else []


def waits_for_others(stack: list[Frame]) -> bool:
    """Whether the process is inside a collective."""
    return any(
        any(part in frame.file for part in WAITING_FILES) or frame.function in WAITING_FUNCTIONS
        for frame in stack[:INNERMOST]
    )


def place(stack: list[Frame]) -> str:
    """The innermost line of the user's own, in words; empty for an unknown stack."""
    here = str(Path(__file__).parents[1]) + os.sep
    own = [f for f in stack if "site-packages" not in f.file and not f.file.startswith(here)]
    own = [f for f in own if not f.file.startswith("<")]
    frame = next(iter([f for f in own if "/lib/python" not in f.file] or own or stack), None)
    return "" if frame is None else f"{frame.file}:{frame.line} in {frame.function}"
