"""Lines on the console, read by the patterns of a preset."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import FrameType
from typing import Any

from canary.errors import ConfigError, InputError
from canary.imports.entries import NON_FINITE, Entry, Telling, number_in, shortened
from canary.imports.files import Found
from canary.imports.preset import GROUPS, Console, Preset, shipped, shipped_names
from canary.imports.readers.jsonl import Document, lines_of
from canary.imports.readers.rows import Ending, entry_of
from canary.imports.series import bounded

SUFFIXES = (".log", ".txt", ".out", ".err")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RAY = re.compile(r"^\((?:[^()]{1,200} )?pid=\d+(?:, ip=[\w.:]+)?\) ?")
"""What Ray puts before a worker's line."""
LIMIT_S, LIMIT_S_PER_MIB = 5.0, 2.0
"""CPU seconds for the patterns of a file, and more for each MiB of it."""
LONGEST_MATCHED = 64 << 10
"""Characters of a line that patterns are tried on."""
TRIED_LINES = 20_000
"""Lines that are tried to choose a preset."""
DECIMAL_COMMA = re.compile(r"[-+]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))(?:[eE][-+]?\d+)?")
"""A number whose comma cannot begin thousands."""
DURATION = re.compile(r"(?:(\d+)h )?(?:(\d+)m )?(?:([\d.]+)(ms|s))?")


class TooSlow(Exception):
    """The patterns used up their time."""


def fits(file: Found) -> bool:
    """Whether a file has the ending of a log."""
    return file.path.suffix in SUFFIXES


@dataclass
class _State:
    step: float | None = None
    """The step of the last header line."""
    counted: int = 0
    """Lines without any step so far."""
    known: frozenset[str] = frozenset()
    """Names of the metrics of the last such line."""


def read(files: Sequence[Found], telling: Telling, preset: Preset | None = None) -> Iterator[Entry]:
    """Yield what the patterns of the preset find, line by line. Without a preset, that of the
    shipped ones is used whose patterns find the most.

    Raises:
        InputError: no pattern finds a number, or the patterns need too long.
    """
    if preset is None:
        preset = fitting(files[0])
    if preset is None or not preset.console:
        raise InputError(
            f"no pattern finds a metric in {files[0].name}",
            "name a preset with console patterns: --preset, or `import.preset` in a config",
        )
    for part, file in enumerate(files):
        allowed = LIMIT_S + LIMIT_S_PER_MIB * file.size / (1 << 20)
        try:
            with _cpu_limit(allowed):
                found = list(bounded(_lines(file, preset, telling, part)))
        except TooSlow as error:
            raise InputError(
                f"the patterns of preset {preset.framework} need more than {allowed:.0f} s of CPU "
                f"for {file.name}",
                "write them without nested repetitions",
            ) from error
        yield from found


def fitting(file: Found) -> Preset | None:
    """Return the shipped preset whose patterns find numbers in the most lines, or None.

    Raises:
        InputError: the patterns need too long.
    """
    try:
        with _cpu_limit(2 * LIMIT_S):
            return _fitting(file)
    except TooSlow as error:
        raise InputError(
            f"the shipped patterns need too long for {file.name}", "name one: --preset NAME|FILE"
        ) from error


def _fitting(file: Found) -> Preset | None:
    best: tuple[int, Preset | None] = (0, None)
    for name in shipped_names():
        preset = shipped(name)
        if not preset.console or preset.extends:
            continue
        lines = 0
        names: set[str] = set()
        for entry in _lines(file, preset, Telling(), 0, TRIED_LINES):
            lines += 1
            names.update(entry.values)
        found = lines * len(preset.names_in(map(preset.inner, names)))
        if found > best[0]:
            best = (found, preset)
    return best[1]


def _lines(
    file: Found, preset: Preset, telling: Telling, part: int, most: int | None = None
) -> Iterator[Entry]:
    patterns = [_Compiled.of(one) for one in preset.console]
    state, ending = _State(), Ending()
    for number, raw, _ in lines_of(file, telling, limited=False):
        if most is not None and number > most:
            return
        # A progress bar writes over its line.
        for piece in raw.decode("utf-8", "replace").strip("\r\n").split("\r"):
            text = RAY.sub("", COLOURS.sub("", piece))
            if len(text) > LONGEST_MATCHED:
                telling.tell("a line was too long for the patterns", file.name, number)
                continue
            entry = _first_match(patterns, text, state, telling, file, number, part)
            if entry is not None and entry.values:
                ending.clear()
                yield entry
                continue
            if state.counted and _is_torn(text, state.known):
                raise InputError(
                    f"{file.name}:{number}: the line is torn, and without steps the lines after it "
                    "cannot be counted",
                    "log the step, or import a file that the framework writes",
                )
            ending.add(text)
    telling.fail(ending.error())


def _is_torn(text: str, known: Set[str]) -> bool:
    """Return whether a line that fits no pattern is a part of one like those with `known` names."""
    if text.count("{") == text.count("}"):
        return False
    return any(re.search(rf"['\"]{re.escape(name)}['\"]\s*:", text) for name in known)


def _first_match(
    patterns: Sequence[_Compiled],
    text: str,
    state: _State,
    telling: Telling,
    file: Found,
    number: int,
    part: int,
) -> Entry | None:
    for pattern in patterns:
        match = pattern.line.search(text)
        if match is not None:
            return pattern.entry(match, state, telling, file, number, part)
    return None


@dataclass(frozen=True)
class _Compiled:
    line: re.Pattern[str]
    pair: re.Pattern[str] | None
    prefix: str
    with_last: bool

    @classmethod
    def of(cls, console: Console) -> _Compiled:
        pair = None if console.pair is None else re.compile(console.pair)
        if pair is not None and not {"key", "value"} <= pair.groupindex.keys():
            raise ConfigError(
                f"the preset's console pattern {shortened(pair.pattern)} (pair) does not name what "
                "it finds",
                "give it the groups (?P<key>...) and (?P<value>...)",
            )
        return cls(re.compile(console.line), pair, console.prefix, console.with_last)

    def entry(
        self,
        match: re.Match[str],
        state: _State,
        telling: Telling,
        file: Found,
        number: int,
        part: int,
    ) -> Entry | None:
        """Return the line's values; None if it is a header, whose step is noted."""
        groups = match.groupdict()
        step = _number(groups.get("step"))
        if groups.get("json") is not None:
            return _of_json(groups["json"], telling, file, number, part)
        values = {
            f"{self.prefix}{name}": value
            for name, text in groups.items()
            if name not in GROUPS and (value := _value(text, name, file, number)) is not None
        }
        if self.pair is not None and groups.get("pairs") is not None:
            for pair in self.pair.finditer(groups["pairs"]):
                value = _value(pair["value"], pair["key"], file, number)
                if value is not None:
                    values[f"{self.prefix}{pair['key'].strip()}"] = value
        if not values:
            state.step = state.step if step is None else step
            return None
        if step is None and state.step is None:
            state.counted += not self.with_last
            state.known = frozenset(name.removeprefix(self.prefix) for name in values)
            telling.tell("the lines have no step, so they are counted from 1", file.name)
            step = state.counted
        return Entry(state.step if step is None else step, values, None, part)


def _of_json(text: str, telling: Telling, file: Found, number: int, part: int) -> Entry | None:
    try:
        row: Any = Document().parse(text)
    except ValueError:
        telling.tell("the object in the line is not JSON and was left out", file.name, number)
        return None
    if not isinstance(row, Mapping):
        return None
    return entry_of(row, telling, file.name, number, part=part)


def _value(text: str | None, name: str, file: Found, line: int) -> float | None:
    """Return a metric's number. Raises InputError for one with a decimal comma."""
    if text is not None and DECIMAL_COMMA.fullmatch(text.strip()):
        raise InputError(
            f"{file.name}:{line}: `{shortened(name)}` is {shortened(text)}, with a decimal comma",
            "write numbers with a decimal point",
        )
    return _number(text)


def _number(text: str | None) -> float | None:
    """Return the number in a text as programs print it: `8,123`, `12.34s`, `1m 5s`, `nan`."""
    if text is None:
        return None
    bare = text.strip().replace(",", "")
    found = NON_FINITE.get(bare.lower(), number_in(bare))
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
