"""Notes which lines of the user's code run until the look ends, and in which phase.

Loaded at the start of each Python process that `canary exec` watches: standard library only, and
little of it. From Python 3.12 on, `sys.monitoring` tells each line once. Python 3.11 can only tell
each call of a function, which doubles the time of imports. There, only functions that the first
steps call are noted, and the first calls of forked processes, such as data workers. All other code
of imported modules counts as run in the set-up.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

MONITORING: Any = getattr(sys, "monitoring", None)
"""From Python 3.12 on."""
SETUP = "setup"
"""The phase of what ran before the first step."""
AFTER = {"forward": "loss", "backward": "optimizer"}
"""What a loop does once a phase has ended, until the next one begins."""
PACKAGE = Path(__file__).resolve().parents[2]
LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
TOOLS = (3, 4)
"""Free ids of `sys.monitoring`; debuggers, coverage, profilers and optimizers have others."""
MOST_EVENTS = 100_000
"""Python 3.11: calls and returns of a forked process that are looked at, in about 20 ms."""
DEEPEST = 100
"""Frames of the stack that are searched for the user's code."""


def is_users_file(name: str) -> bool:
    """Return whether this is a file of code that is neither installed nor the canary's."""
    if name.startswith(("<", *LIBRARIES)):
        return False
    parts = Path(name).parts
    return "site-packages" not in parts and parts[: len(PACKAGE.parts)] != PACKAGE.parts


class RanCode:
    """The code of this process that ran until the look ended. Nothing is noted before `begin`."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, str]] = {}
        """Phase by line, by file: that of the first steps if the line ran in one of them."""
        self.calls: dict[str, dict[int, str]] = {}
        """Python 3.11: phase by the first line of each function that a step or a forked process
        called."""
        self.from_start = False
        """Whether noting began with the process, and lines are noted."""
        self._phase = SETUP
        self._users: dict[CodeType, bool] = {}
        self._tool: int | None = None
        self._profiles = False
        self._children: Path | None = None

    def begin(self, children: str | None = None) -> None:
        """Begin with the process. `children`: a folder in which forked processes leave lines."""
        if children:
            self._children = Path(children) / f"ran.{os.getpid()}"
            os.register_at_fork(after_in_child=self._forked)
        for tool in TOOLS if MONITORING is not None else ():
            with contextlib.suppress(ValueError):
                MONITORING.use_tool_id(tool, "canary")
                self._tool = tool
                break
        if self._tool is None:
            return
        self.from_start = True
        events = MONITORING.events
        MONITORING.register_callback(self._tool, events.PY_START, self._started)
        MONITORING.register_callback(self._tool, events.LINE, self._line)
        MONITORING.set_events(self._tool, events.PY_START)

    def training_begins(self) -> None:
        """The first step begins: note what runs in steps, whether or not it ran before."""
        self._phase = "other"
        if self._tool is not None:
            MONITORING.restart_events()
        elif sys.getprofile() is None and threading.current_thread() is threading.main_thread():
            self._profiles = True
            sys.setprofile(self._called)

    def phase_is(self, phase: str) -> None:
        """A step enters another phase."""
        ended, self._phase = self._phase, phase
        if phase == "other":
            self._phase = AFTER.get(ended, phase)
        if self._profiles:
            self._note_stack(phase)

    def end(self) -> None:
        """Stop: the look is over, or there is none."""
        if self._tool is not None:
            MONITORING.free_tool_id(self._tool)
            self._tool = None
        if self._profiles:
            self._profiles = False
            if sys.getprofile() == self._called:
                sys.setprofile(None)
        self._users.clear()
        if self._children is not None:
            self._read_children(self._children)
            self._children = None

    def _is_users(self, code: CodeType) -> bool:
        known = self._users.get(code)
        if known is None:
            known = self._users[code] = is_users_file(code.co_filename)
        return known

    def _started(self, code: CodeType, _: int) -> Any:
        if self._tool is not None and is_users_file(code.co_filename):
            MONITORING.set_local_events(self._tool, code, MONITORING.events.LINE)
        return MONITORING.DISABLE

    def _line(self, code: CodeType, line: int) -> Any:
        self._note(code.co_filename, line)
        return MONITORING.DISABLE

    def _note(self, file: str, line: int) -> None:
        known = self.lines.setdefault(file, {})
        if known.get(line, SETUP) == SETUP:
            known[line] = self._phase

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and self._is_users(code):
            self.calls.setdefault(code.co_filename, {}).setdefault(code.co_firstlineno, self._phase)

    def _note_stack(self, phase: str) -> None:
        """Note the lines of the user's loop that entered a phase, which calls alone do not show."""
        frame: FrameType | None = sys._getframe(2)
        for _ in range(DEEPEST):
            if frame is None:
                return
            if self._is_users(frame.f_code):
                file = frame.f_code.co_filename
                if phase != "other":
                    self._note(file, frame.f_lineno)
                self.calls.setdefault(file, {}).setdefault(frame.f_code.co_firstlineno, "loop")
            frame = frame.f_back

    def _forked(self) -> None:
        """In a forked process, such as a data worker: leave each line for the parent, or the first
        line of each function."""
        if self._children is None or (MONITORING is not None and self._tool is None):
            return
        stream = self._children.open("a", buffering=1)
        known: set[tuple[str, int]] = set()

        def note(file: str, line: int) -> None:
            if (file, line) not in known:
                known.add((file, line))
                stream.write(f"{line} {file}\n")

        self._note = note  # type: ignore[method-assign]
        if MONITORING is None and sys.getprofile() in (None, self._called):
            left = iter(range(MOST_EVENTS))

            def called(frame: FrameType, event: str, _: object) -> None:
                if event == "call" and self._is_users(frame.f_code):
                    note(frame.f_code.co_filename, frame.f_code.co_firstlineno)
                if next(left, None) is None:
                    sys.setprofile(None)

            sys.setprofile(called)

    def _read_children(self, notes: Path) -> None:
        """Add what forked processes ran; they make batches."""
        noted = self.calls if MONITORING is None else self.lines
        with contextlib.suppress(OSError):
            for text in notes.read_text().splitlines():
                line, _, file = text.partition(" ")
                known = noted.setdefault(file, {})
                if known.get(int(line), SETUP) == SETUP:
                    known[int(line)] = "data"


RAN = RanCode()
"""The one of this process."""
