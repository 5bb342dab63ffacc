"""Lines on the console, read by the patterns of a preset."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from types import FrameType
from typing import Any

from canary.errors import ConfigError, InputError
from canary.imports.entries import Ending, Entry, Telling, entry_of, number_in, shortened
from canary.imports.files import Found
from canary.imports.preset import GROUPS, Preset
from canary.imports.readers.json_files import lines_of, parse_json
from canary.imports.series import bounded

SUFFIXES = (".log", ".txt", ".out", ".err")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RAY = re.compile(r"^\((?:[^()]{1,200} )?pid=\d+(?:, ip=[\w.:]+)?\) ?")
"""What Ray puts before a worker's line."""
LIMIT_S, LIMIT_S_PER_MIB = 5.0, 2.0
"""CPU seconds for the patterns of a file, and more for each MiB of it."""
LONGEST_MATCHED = 64 << 10
"""Characters of a line that patterns are tried on."""
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
DURATION = re.compile(r"(?:(\d+)h )?(?:(\d+)m )?(?:([\d.]+)(ms|s))?")


class TooSlow(Exception):
    """The patterns used up their time."""


def fits(file: Found) -> bool:
    """Whether a file has the ending of a log."""
    return file.path.suffix in SUFFIXES


def read(file: Found, telling: Telling, preset: Preset | None = None) -> Iterator[Entry]:
    """Yield what the patterns of the preset find, line by line.

    Raises:
        InputError: the preset has no pattern, or the patterns need too long.
    """
    if preset is None or not preset.console:
        raise InputError(
            f"{file.name} is read by the console patterns of a preset",
            "name one: --preset, or `import.preset` in a config",
        )
    allowed = LIMIT_S + LIMIT_S_PER_MIB * file.size / (1 << 20)
    try:
        with _cpu_limit(allowed):
            found = list(bounded(_Log(file, preset, telling).entries()))
    except TooSlow as error:
        raise InputError(
            f"the patterns of preset {preset.framework} need more than {allowed:.0f} s of CPU "
            f"for {file.name}",
            "write them without nested repetitions",
        ) from error
    yield from found


class _Log:
    """One log, read by the patterns of a preset."""

    def __init__(self, file: Found, preset: Preset, telling: Telling) -> None:
        self._file, self._telling = file, telling
        self._patterns = [
            (one, re.compile(one.line), None if one.pair is None else re.compile(one.pair))
            for one in preset.console
        ]
        for _, _, pair in self._patterns:
            if pair is not None and not {"key", "value"} <= pair.groupindex.keys():
                raise ConfigError(
                    f"the preset's console pattern {shortened(pair.pattern)} (pair) does not name "
                    "what it finds",
                    "give it the groups (?P<key>...) and (?P<value>...)",
                )
        self._line = 0
        """The line that is read, counted from 1."""
        self._step: float | None = None
        """The step of the last header line."""
        self._counted = 0
        """Lines without any step so far."""

    def entries(self) -> Iterator[Entry]:
        """Yield the values of the lines."""
        ending = Ending()
        known: set[str] = set()
        for number, raw, _ in lines_of(self._file):
            self._line = number
            # A progress bar writes over its line.
            for piece in raw.decode("utf-8", "replace").strip("\r\n").split("\r"):
                text = RAY.sub("", COLOURS.sub("", piece))
                if len(text) > LONGEST_MATCHED:
                    self._tell("a line was too long for the patterns")
                    continue
                entry = self._entry(text)
                if entry is not None and entry.values:
                    ending.clear()
                    known |= entry.values.keys()
                    yield entry
                    continue
                if self._counted and _is_torn(text, known):
                    raise InputError(
                        f"{self._file.name}:{self._line}: the line is torn, and without steps the "
                        "lines after it cannot be counted",
                        "log the step, or import a file that the framework writes",
                    )
                ending.add(text)
        self._telling.fail(ending.error())

    def _tell(self, what: str) -> None:
        self._telling.tell(what, self._file.name, self._line)

    def _entry(self, text: str) -> Entry | None:
        """Return a line's values; None if no pattern fits it, or it is a header, whose step is
        noted."""
        found = ((one, line.search(text), pair) for one, line, pair in self._patterns)
        console, match, pair = next((each for each in found if each[1]), (None, None, None))
        if console is None or match is None:
            return None
        groups = match.groupdict()
        if groups.get("json") is not None:
            try:
                row: Any = parse_json(groups["json"])
            except ValueError:
                self._tell("the object in the line is not JSON and was left out")
                return None
            is_row = isinstance(row, Mapping)
            return entry_of(row, self._telling, self._file.name, self._line) if is_row else None
        texts = [(name, text) for name, text in groups.items() if name not in GROUPS]
        if pair is not None:
            pairs = pair.finditer(groups.get("pairs") or "")
            texts += [(one["key"].strip(), one["value"]) for one in pairs]
        named = {f"{console.prefix}{name}": text for name, text in texts if text}
        numbers = {name: _number(text) for name, text in named.items()}
        values = {name: value for name, value in numbers.items() if value is not None}
        words = {name: text for name, text in named.items() if name not in values}
        given = groups.get("step")
        step = _number(given)
        if not values:
            self._step = self._step if step is None else step
            return None
        if step is None and given:
            raise InputError(
                f"{self._file.name}:{self._line}: the step is {shortened(given)}, not a number",
                "write steps as whole numbers",
            )
        if step is None and self._step is None:
            self._counted += not console.with_last
            what = "the lines have no step, so they are counted from 1"
            self._telling.tell(what, self._file.name)
            step = self._counted
        return Entry(self._step if step is None else step, values, line=self._line, texts=words)


def _is_torn(text: str, known: Set[str]) -> bool:
    """Return whether a line that fits no pattern is a part of one like those with `known` names."""
    if text.count("{") == text.count("}"):
        return False
    return any(re.search(rf"['\"]{re.escape(name)}['\"]\s*:", text) for name in known)


def _number(text: str | None) -> float | None:
    """Return the number in a text as programs print it: `8,123`, `12.34s`, `1m 5s`, `nan`."""
    if text is None:
        return None
    bare = text.strip().rstrip(",")
    if THOUSANDS.fullmatch(bare):
        bare = bare.replace(",", "")
    found = number_in(bare)
    if found is not None or not bare:
        return found
    duration = DURATION.fullmatch(bare)
    if duration is None:
        return None
    hours, minutes, rest, unit = duration.groups()
    seconds = float(rest or 0) / (1000 if unit == "ms" else 1)
    return 3600 * float(hours or 0) + 60 * float(minutes or 0) + seconds


@contextlib.contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` when the block has used this much CPU: Python's matcher looks for signals.

    Outside the main thread, which alone gets signals, there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "SIGVTALRM"
    ):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    held: Callable[[int, FrameType | None], Any] | int | None
    held = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL if held is None else held)
