"""How a training process that failed says so in the record."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

from canary.errors import CanaryError, UsageError
from canary.runner.base import Result, disk_full

FULL = (errno.ENOSPC, errno.EDQUOT)


def describe_failure(error: BaseException) -> Result:
    """The record's words for whatever ended the training."""
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
    if isinstance(error, OSError) and error.errno in FULL:
        return disk_full(error.filename)
    return Result(status="failed", reason=f"{one_line(error)}{_where(error)}")


def is_out_of_memory(error: BaseException) -> bool:
    """torch's own type, Python's, and the CPU allocator's plain RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text
        or "CUDA out of memory" in text
        or "not enough memory" in text
    )


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:400]


def _where(error: BaseException) -> str:
    """The user's own line where there is one, else the innermost that is not the canary's."""
    here = str(Path(__file__).resolve().parents[1]) + os.sep
    everything = list(traceback.extract_tb(error.__traceback__))
    frames = [f for f in everything if not f.filename.startswith(here)] or everything
    if not frames:
        return ""
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    frame = (own or frames)[-1]
    return f" (at {_told(frame.filename)}:{frame.lineno})"


def _told(filename: str) -> str:
    """A file as its readers know it, below the folder of the training or of its packages: the
    folders above are the runner's own, and other ones in each run."""
    roots = [
        Path.cwd(),
        *(Path(entry) for entry in sorted(sys.path, key=len, reverse=True) if entry),
    ]
    return next((str(p) for root in roots if (p := _below(Path(filename), root))), filename)


def _below(file: Path, root: Path) -> Path | None:
    return file.relative_to(root) if file.is_relative_to(root) else None
