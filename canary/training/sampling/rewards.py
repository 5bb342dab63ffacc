"""Asks a reward function again about the completions of its first call.

It is asked in a fork of the process, which ends afterwards. So the training goes on as without the
questions, whatever state the function keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import io
import math
import os
import random
import select
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from canary.protocol.failure import one_line
from canary.record import jsonio
from canary.relations.sampling import Reward
from canary.training.sampling.clock import set_clock

TIMEOUT_S = 60.0
DAY_S = 86_400.0
ALONE = 4
"""Rows that are asked alone."""
APART = 1e-4
"""Of the largest reward: a model inside the function rounds."""
MOST_BYTES = 1 << 24
END = b"\n"
"""Of an answer."""

AGAIN = "when it is called again"
Ask = Callable[[], list[float]]


def numbers_of(result: Any) -> list[float] | None:
    """Return rewards as numbers, NaN for None; None if these are no rewards."""
    if torch.is_tensor(result):
        result = result.detach().cpu().float()
    found = result.tolist() if hasattr(result, "tolist") else result
    if not isinstance(found, list | tuple) or not found:
        return None
    try:
        return [math.nan if one is None else float(one) for one in found]
    except (OverflowError, TypeError, ValueError):
        return None


def asked(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
    restore_random: Callable[[], None],
) -> Reward:
    """Ask again, and return what changed.

    Args:
        function: called with `args` and `kwargs`; it may be async.
        args: those of its first call.
        kwargs: those too.
        result: what it returned.
        restore_random: `random_states(devices=False)` of before that call.
    """
    name = str(getattr(function, "__name__", type(function).__name__))
    known = numbers_of(result)
    if known is None:
        return Reward(name, 0, "", unasked="it returns no list of numbers")
    if not hasattr(os, "fork"):
        return Reward(name, len(known), "", unasked="this system cannot fork a process")
    found = _in_fork(lambda: _Questions(function, args, kwargs, known, restore_random).answers())
    if isinstance(found, str):
        return Reward(name, len(known), "", unasked=found)
    if not found:
        return Reward(name, len(known), "")
    return Reward(
        name,
        len(known),
        found["how"],
        f"completion {found['row']}",
        (known[found["row"]], float(found["value"])),
        found["cause"],
    )


class _Questions:
    """The ways to ask, inside the fork."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        known: Sequence[float],
        restore_random: Callable[[], None],
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._known, self._restore_random = known, restore_random

    def answers(self) -> dict[str, Any]:
        """Return how a reward first changed; empty if none did."""
        for how, cause, rows, ask in self._ways():
            values = ask()
            if len(values) != len(rows):
                return {"how": how, "cause": cause, "row": rows[0], "value": "nan"}
            for row, value in zip(rows, values, strict=True):
                if not self._equal(self._known[row], value):
                    cause = self._why() if how == AGAIN else cause
                    return {"how": how, "cause": cause, "row": row, "value": repr(value)}
        return {}

    def _ways(self) -> Iterator[tuple[str, str, list[int], Ask]]:
        every = list(range(len(self._known)))
        yield AGAIN, "", every, self._call
        chance = "it draws random numbers"
        yield "with other random numbers", chance, every, self._by_chance
        order = "it depends on the order of the rows"
        back = every[::-1]
        if len(every) > 1:
            yield "in the reverse order", order, back, functools.partial(self._call, back)
            for row in every[:ALONE]:
                alone = "it depends on the other rows"
                yield (
                    "for it alone",
                    alone,
                    [row],
                    functools.partial(self._call, [row]),
                )
        yield "a day later", "it reads the clock", every, self._later

    def _call(self, rows: Sequence[int] | None = None) -> list[float]:
        self._restore_random()
        return self._called(rows)

    def _called(self, rows: Sequence[int] | None = None) -> list[float]:
        count = len(self._known)
        args = [_picked(one, rows, count) for one in self._args]
        kwargs = {name: _picked(one, rows, count) for name, one in self._kwargs.items()}
        result = self._function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return numbers_of(result) or []

    def _by_chance(self) -> list[float]:
        self._restore_random()
        random.seed(20_011)
        torch.manual_seed(20_011)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(20_011)
        return self._called()

    def _later(self) -> list[float]:
        set_clock(self._function, lambda now: now + DAY_S)
        return self._call()

    def _why(self) -> str:
        """Return why the same call gave another reward."""
        now = time.time()
        set_clock(self._function, lambda _: now)
        one, other = self._call(), self._call()
        same = len(one) == len(other) and all(map(self._equal, one, other))
        return "it reads the clock" if same else "it keeps a state of its own"

    def _equal(self, one: float, other: float) -> bool:
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        largest = max((abs(one) for one in self._known if not math.isnan(one)), default=0.0)
        return one == other or abs(one - other) <= APART * largest


def _picked(value: Any, rows: Sequence[int] | None, count: int) -> Any:
    """Return some entries of an argument that has one per row."""
    if rows is None:
        return value
    if torch.is_tensor(value):
        return value[list(rows)] if value.dim() and len(value) == count else value
    if isinstance(value, list | tuple) and len(value) == count:
        return type(value)([value[row] for row in rows]) if type(value) in (list, tuple) else value
    return value


async def _awaited(result: Any) -> Any:
    return await result


def _in_fork(answers: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """Return the answers of a forked process, or why there are none."""
    _flush_files()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # The threads of this process have no part in what the fork does.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _answer_and_end(answers, reading, writing)
    os.close(writing)
    try:
        text = _read(reading)
    finally:
        os.close(reading)
        for end in (os.killpg, os.kill):  # With all that it started, if it leads a group yet.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # A process may ignore its children's end.
            os.waitpid(child, 0)
    if text is None:
        return f"its calls in a forked process took more than {TIMEOUT_S:.0f} s"
    found: dict[str, Any] = (
        jsonio.loads(text) if text else {"error": "the forked process ended early"}
    )
    changed: dict[str, Any] = found.get("changed", {})
    return str(found["error"]) if "error" in found else changed


def _answer_and_end(answers: Callable[[], dict[str, Any]], reading: int, writing: int) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(TIMEOUT_S) + 5)  # If the training is killed, nobody ends this process.
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        _leave_connections(nothing)
        for name in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(name, signal.SIG_DFL)
        asyncio.events._set_running_loop(None)
        torch.set_num_threads(1)
        found: dict[str, Any]
        try:
            found = {"changed": answers()}
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            found = {"error": f"it fails when called again: {one_line(error)}"}
        with open(writing, "wb", closefd=False) as answer:
            answer.write(jsonio.dumps(found).encode() + END)
    finally:
        os._exit(0)


def _flush_files() -> None:
    """Write what the training's open files hold back, or the fork would write it too."""
    for one in gc.get_objects():
        if io.IOBase in type(one).__mro__:
            with contextlib.suppress(Exception):
                if not one.closed and one.writable():
                    one.flush()


def _leave_connections(nothing: int) -> None:
    """Put nothing in place of sockets: what is read from them would be missing in the training."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():  # noqa: PTH208, PTH112
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup2(nothing, int(name))


def _read(reading: int) -> str | None:
    """Return the answer, or None after the timeout."""
    text, end = b"", time.monotonic() + TIMEOUT_S
    while len(text) < MOST_BYTES:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        more = os.read(reading, 1 << 16)
        if not more:
            break
        text += more
        if text.endswith(END):  # What the function started may hold the pipe open.
            break
    return text.decode(errors="replace").strip()
