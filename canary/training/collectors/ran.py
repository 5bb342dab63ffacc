"""Notes which lines of the user's code run until the look ends, and in which phase.

Loaded at the start of each Python process that `canary exec` watches: standard library only, and
little of it. From Python 3.12 on, `sys.monitoring` tells each line once. Python 3.11 can only tell
each call of a function, which doubles the time of imports. There, only functions that the first
steps call are noted, and the first calls of forked processes. All other code of imported modules
counts as run in the set-up.

A training has helpers: processes that it forks or spawns, such as data workers, and programs that
its command starts. They leave notes in a folder, and the process that trains adds them to its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
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
"""Python 3.11: calls and returns of a forked process that are looked at, in about 40 ms."""
MOST_OF_PHASE = 200_000
"""Python 3.11: those of each phase, all steps of the look together, in about 0.1 s. A step may call
millions of functions, as when it evaluates; those that matter come early."""
DEEPEST = 100
"""Frames of the stack that are searched for the user's code."""
OF_WORKERS = "data"
"""The phase of what the training's own workers run: they make batches."""
LOADED = 0
"""The line that stands for a whole file, where lines are not noted."""
OF_MODULE = 0
"""The line at which the code of a module begins, among those of its functions."""


def is_users_file(name: str) -> bool:
    """Return whether this is a file of code that is neither installed nor the canary's."""
    if name.startswith(("<", *LIBRARIES)):
        return False
    parts = Path(name).parts
    return "site-packages" not in parts and parts[: len(PACKAGE.parts)] != PACKAGE.parts


def loaded_files() -> Iterator[str]:
    """Yield the user's files of code that this process imported, and its script."""
    for name, module in [*sys.modules.items()]:
        if not issubclass(type(module), ModuleType):
            continue
        found = object.__getattribute__(module, "__dict__")  # No code of a lazy module runs.
        file = found.get("__file__")
        if file is None and name == "__main__":  # The name is gone when the process ends.
            file = getattr(found.get("__loader__"), "path", None)
        if not isinstance(file, str) or not (file.endswith(".py") or name == "__main__"):
            continue
        if is_users_file(file):
            yield file


def first_line(code: CodeType) -> int:
    """Return the line at which a function begins."""
    return OF_MODULE if code.co_name == "<module>" else code.co_firstlineno


class RanCode:
    """The code of this process that ran until the look ended. Nothing is noted before `begin`."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, str]] = {}
        """Phase by line, by file: that of the first steps if the line ran in one of them."""
        self.calls: dict[str, dict[int, str]] = {}
        """Python 3.11: phase by the first line of each function that a step or a forked process
        called."""
        self.loaded: set[str] = set()
        """Python 3.11: the files that helpers imported."""
        self.from_start = False
        """Whether noting began with the process, and lines are noted."""
        self._phase = SETUP
        self._users: dict[CodeType, bool] = {}
        self._tool: int | None = None
        self._profiled: int | None = None
        """Python 3.11: the thread whose calls are noted."""
        self._by_phase: dict[str, Iterator[int]] = {}
        """Python 3.11: an item for each call or return that is still looked at."""
        self._left: Iterator[int] = iter(())
        """Those of the running phase."""
        self._notes: Path | None = None
        self._leaves: str | None = None
        """The phase of lines that this process leaves for the one that trains; None: it leaves
        none."""

    def begin(self, notes: str | None = None, *, trains: bool = False) -> None:
        """Begin with the process. `notes`: a folder in which helpers leave theirs. `trains`:
        whether this process surely trains. Otherwise it helps, until its first step begins."""
        if notes:
            self._notes = Path(notes)
            os.register_at_fork(after_in_child=self._forked)
            if not trains:
                spawned = "--multiprocessing-fork" in sys.orig_argv
                self._leaves = OF_WORKERS if spawned else SETUP
        for tool in TOOLS if MONITORING is not None else ():
            with contextlib.suppress(ValueError):
                MONITORING.use_tool_id(tool, "canary")
                self._tool = tool
                break
        if self._tool is None:
            if notes:
                atexit.register(self._leave_loaded)
            return
        self.from_start = True
        events = MONITORING.events
        MONITORING.register_callback(self._tool, events.PY_START, self._started)
        MONITORING.register_callback(self._tool, events.LINE, self._line)
        MONITORING.set_events(self._tool, events.PY_START)

    def training_begins(self) -> None:
        """The first step begins: note what runs in steps, whether or not it ran before."""
        self._phase = "other"
        if self._leaves is not None:  # It is no helper, so what it left is not of one.
            self._leaves = None
            with contextlib.suppress(OSError):
                self._own_notes().unlink(missing_ok=True)
        if self._tool is not None:
            MONITORING.restart_events()
        elif (
            sys.getprofile() in (None, self._called)
            and threading.current_thread() is threading.main_thread()
        ):
            self._profiled = threading.get_ident()
            self._profile()

    def phase_is(self, phase: str) -> None:
        """A step enters another phase."""
        ended, self._phase = self._phase, phase
        if phase == "other":
            self._phase = AFTER.get(ended, phase)
        if self._profiled == threading.get_ident():
            self._note_stack(phase)
            self._profile()

    def _profile(self) -> None:
        """Note calls of this phase, until they are enough."""
        self._left = self._by_phase.setdefault(self._phase, iter(range(MOST_OF_PHASE)))
        if sys.getprofile() is None:
            sys.setprofile(self._called)

    def end(self) -> None:
        """Stop: the look is over, or there is none."""
        if self._tool is not None:
            MONITORING.free_tool_id(self._tool)
            self._tool = None
        self._left = iter(())  # Another thread that is noted stops with its next call.
        if self._profiled is not None:
            self._profiled = None
            if sys.getprofile() == self._called:
                sys.setprofile(None)
        self._users.clear()
        self._leaves = None
        if self._notes is not None:
            self._read_helpers(self._notes)

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
        if self._leaves is not None:
            phase = SETUP if code.co_name == "<module>" else self._leaves
            self._leave(phase, line, code.co_filename)
        self._note(code.co_filename, line)
        return MONITORING.DISABLE

    def _note(self, file: str, line: int) -> None:
        known = self.lines.setdefault(file, {})
        if known.get(line, SETUP) == SETUP:
            known[line] = self._phase

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if next(self._left, None) is None:
            sys.setprofile(None)
        code = frame.f_code
        if event != "call" or not self._is_users(code):
            return
        known, line = self.calls.setdefault(code.co_filename, {}), first_line(code)
        if line not in known:
            known[line] = self._phase
            if self._leaves is not None:
                self._leave(self._leaves, code.co_firstlineno, code.co_filename)

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
                self.calls.setdefault(file, {}).setdefault(first_line(frame.f_code), "loop")
            frame = frame.f_back

    def _forked(self) -> None:
        """In a forked process, such as a data worker: leave each line that runs there. Of Python
        3.11, leave the first line of each function."""
        if self._tool is not None:
            self._leaves = OF_WORKERS
            MONITORING.restart_events()
        elif MONITORING is None and sys.getprofile() in (None, self._called):
            self._leaves, self._profiled, self.calls = OF_WORKERS, None, {}
            self._left = iter(range(MOST_EVENTS))
            sys.setprofile(self._called)

    def _leave(self, phase: str, line: int, file: str) -> None:
        """Leave a line at once: workers are killed. The file does not stay open, because a user's
        process may close all files and open others."""
        with contextlib.suppress(OSError, ValueError), self._own_notes().open("ab") as stream:
            stream.write(f"{phase} {line} {file}\0".encode(errors="surrogateescape"))

    def _own_notes(self) -> Path:
        assert self._notes is not None
        return self._notes / f"ran.{os.getpid()}"

    def _leave_loaded(self) -> None:
        """Python 3.11, at the end of a process that did not train: leave its files."""
        if self._leaves is not None:
            for file in {*loaded_files()}:
                self._leave(SETUP, LOADED, file)

    def _read_helpers(self, notes: Path) -> None:
        """Add what helpers ran until now. The last note may be cut."""
        noted = self.calls if MONITORING is None else self.lines
        with contextlib.suppress(OSError):
            for one in notes.glob("ran.*"):
                for text in one.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]:
                    phase, line, file = text.split(" ", 2)
                    if int(line) == LOADED:
                        self.loaded.add(file)
                        continue
                    known = noted.setdefault(file, {})
                    if known.get(int(line), SETUP) == SETUP:
                        known[int(line)] = phase


RAN = RanCode()
"""The one of this process."""
