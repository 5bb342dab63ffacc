"""How a failed training process is described in the record."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import DISK_FULL, CanaryError, UsageError, printable
from canary.protocol.job import Result, disk_full

if TYPE_CHECKING:
    from canary.record.types import Failure

LONGEST = 400
"""Characters of an error that are kept."""
DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\[(?:rank|default)\d+\]: ?", re.MULTILINE)
"""Colours of newer Python tracebacks, and the prefixes that torch and torchrun give to ranks."""
FRAME = re.compile(r' {2}File "(.+)", line (\d+)(?:, in (.+))?')
PLACE = re.compile(
    r" \(at (?P<file>[^():]+):(?P<line>\d{1,9})(?: in (?P<function>[^(),]+))?"
    r"(?:, raised at (?P<raised>[^()]+))?\)"
)
"""The user's line in a reason, and the line of a library that raised the error."""
NAMED = re.compile(
    r"(?:^|exited with code -?\d+(?: before training)?: |^rank [^:;]*: )"
    r"(?P<error>(?:(?:\w+\.)*[A-Z]\w*|(?:\w+\.)+\w+)(?:: .*)?$)"
)
"""The error that ended a program, in a reason without its place."""
OF_WORKER = "Original Traceback (most recent call last):"
"""In the message of an error that torch brings from a worker of a DataLoader."""
LAUNCHERS = ("torch.distributed.elastic.", "subprocess.CalledProcessError")
"""Errors of torchrun and accelerate, which only say that one of their processes failed."""
NOT_FOUND = re.compile(r"FileNotFoundError|No such file|does not exist|ModuleNotFoundError")
TIMED_OUT = re.compile(r"timed out|operation timeout", re.IGNORECASE)
"""From gloo and from NCCL's watchdog."""
HERE = str(Path(__file__).resolve().parents[1]) + os.sep
COMMANDS = str(Path(sys.executable or os.devnull).parent) + os.sep
LIBRARIES = re.compile(r"^.*(?:/(?:site|dist)-packages/|/lib/python3[^/]*/)")
INSTALLED = re.compile(rf"{LIBRARIES.pattern}|^<frozen |^{re.escape(COMMANDS)}")
"""Files that the user did not write: Python, installed packages and their commands."""


def describe_failure(error: BaseException) -> Result:
    """Return the result of a training that an exception ended."""
    if isinstance(error, CanaryError):
        return Result(
            status="failed",
            reason=error.message,
            hint=error.hint,
            usage_error=isinstance(error, UsageError),
        )
    if isinstance(error, KeyboardInterrupt):
        return Result(status="interrupted", reason="the training was interrupted")
    if is_out_of_memory(error):
        return Result(
            status="oom",
            reason=f"out of memory: {one_line(error)}",
            hint="lower batch_size, max_length or the model's size, or set use_peft",
        )
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return disk_full(error.filename)
    words = one_line(error)
    reason = f"{words}{_where(error)}"
    if OF_WORKER in (text := _message(error)):
        reason = words = last_words(text)
    return Result(status="failed", reason=reason, failure=failure_of(words), see_log=True)


def struck(error: BaseException) -> bool:
    """Return whether one of the program's signal handlers raised this, as a time limit does: it is
    meant for the code that the signal struck, wherever that was."""
    handlers: list[Any] = [signal.getsignal(number) for number in signal.valid_signals()]
    inner = [getattr(one, "func", one) for one in handlers]
    codes = {getattr(getattr(one, "__func__", one), "__code__", None) for one in inner} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def failure_of(words: str) -> Failure | None:
    """Return the kind of failure in the message of another program: torch, a library, a command.
    Their errors have no code; from here on the kind is a field."""
    if NOT_FOUND.search(words):
        return "not found"
    return "timed out" if TIMED_OUT.search(words) else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether it is torch's or Python's error type, or the CPU allocator's RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = _message(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text
        or "CUDA out of memory" in text
        or "not enough memory" in text
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return "(its message cannot be read)"


def one_line(error: BaseException) -> str:
    text = " ".join(_message(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:LONGEST]


def split_place(reason: str) -> tuple[str, re.Match[str] | None]:
    """Return a reason without its place, and the place: the last one, because the message before it
    is the user's. None if there is none."""
    found = [*PLACE.finditer(reason)]
    if not found:
        return reason, None
    return f"{reason[: found[-1].start()]}{reason[found[-1].end() :]}", found[-1]


def named_error(reason: str) -> str:
    """Return type and message of the error that a reason names with its line; otherwise empty."""
    words, place = split_place(reason)
    found = NAMED.search(words) if place else None
    return found["error"] if found else ""


def last_words(output: str) -> str:
    """Return why a process ended, from its output: the error of its last traceback with the user's
    line, or its last line without a traceback. Empty if it printed nothing."""
    lines = DECORATION.sub("", output).splitlines()
    errors: list[str] = []
    frames: list[Frame] = []
    for line in lines:
        frame = FRAME.match(line)
        if frame:
            frames.append((frame[1], int(frame[2]), frame[3] or ""))
        elif frames and line.strip() and not line.startswith(" "):
            errors.append(f"{line.strip()[:LONGEST]}{_at(frames)}")
            frames = []
    errors = [error for error in errors if not error.startswith(LAUNCHERS)] or errors
    if errors:
        return printable(errors[-1])
    printed = [line.strip() for line in lines if line.strip()]
    absent = [line for line in printed if line.endswith(": command not found")]
    return printable((absent or printed or [""])[-1][:LONGEST])


def _where(error: BaseException) -> str:
    """Return the error's innermost line in the user's code, also of the calls around the code that
    caught it."""
    trace = error.__traceback__
    around = trace.tb_frame.f_back if trace is not None else None
    outer = reversed([*traceback.walk_stack(around)]) if around is not None else ()
    calls = (one for one in outer if not one[0].f_code.co_filename.startswith("<"))
    frames = [*calls, *traceback.walk_tb(trace)]
    return _at([(one.f_code.co_filename, line, one.f_code.co_name) for one, line in frames])


Frame = tuple[str, int, str]


def _at(frames: Sequence[Frame]) -> str:
    """Return the innermost line of the working folder, else of the user's code, else of code that
    is not ours; and the line of a library that it called and that raised the error."""
    others = [frame for frame in frames if not frame[0].startswith(HERE)]
    users = [frame for frame in others if not INSTALLED.search(frame[0])]
    inside = [frame for frame in users if _below(Path(frame[0]), Path.cwd())]
    chosen = (inside or users or others or [*frames] or [("", 0, "")])[-1]
    raised = others[-1] if users else chosen
    called = f", raised at {_line(raised)}" if raised != chosen else ""
    return f" (at {_line(chosen)}{called})" if chosen[0] else ""


def _line(frame: Frame) -> str:
    file, line, function = frame
    return f"{_shortened(file)}:{line}{'' if function in ('', '<module>') else f' in {function}'}"


def _shortened(filename: str) -> str:
    """Return a file relative to the training's folder or to its packages: the folders above differ
    in each run on a runner."""
    roots = [
        Path.cwd(),
        *(Path(entry) for entry in sorted(sys.path, key=len, reverse=True) if entry),
    ]
    if LIBRARIES.search(filename):
        return LIBRARIES.sub("", filename)
    return next((str(p) for root in roots if (p := _below(Path(filename), root))), filename)


def _below(file: Path, root: Path) -> Path | None:
    return file.relative_to(root) if file.is_relative_to(root) else None
