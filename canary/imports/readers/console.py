"""Lines on the console, read by the patterns of a preset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from canary.errors import InputError
from canary.imports.entries import NON_FINITE, Entry, Telling, number_in, shortened
from canary.imports.files import Found
from canary.imports.preset import GROUPS, Console, Preset, shipped, shipped_names
from canary.imports.readers.jsonl import lines_of, parsed
from canary.imports.readers.rows import Ending, entry_of

SUFFIXES = (".log", ".txt", ".out", ".err")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RAY = re.compile(r"^\((?:[^()]{1,200} )?pid=\d+(?:, ip=[\w.:]+)?\) ?")
"""What Ray puts before a worker's line."""
LONGEST_MATCHED = 16 << 10
"""Characters of a line that patterns are tried on."""
TRIED_LINES = 20_000
"""Lines that are tried to choose a preset."""
DECIMAL_COMMA = re.compile(r"[-+]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))(?:[eE][-+]?\d+)?")
"""A number whose comma cannot begin thousands."""
DURATION = re.compile(r"(?:(\d+)h )?(?:(\d+)m )?(?:([\d.]+)(ms|s))?")


def fits(file: Found) -> bool:
    """Whether a file has the ending of a log."""
    return file.path.suffix in SUFFIXES


def read(files: Sequence[Found], telling: Telling, preset: Preset | None = None) -> Iterator[Entry]:
    """Yield what the patterns of the preset find, line by line. Without a preset, that of the
    shipped ones is used whose patterns find the most.

    Raises:
        InputError: no pattern finds a number.
    """
    if preset is None:
        preset = fitting(files[0])
    if preset is None or not preset.console:
        raise InputError(
            f"no pattern finds a metric in {files[0].name}",
            "name a preset with console patterns: --preset, or `import.preset` in a config",
        )
    for part, file in enumerate(files):
        yield from _Log(file, preset, telling, part).entries()


def fitting(file: Found) -> Preset | None:
    """Return the shipped preset whose patterns find numbers in the most lines, or None."""
    best: tuple[int, Preset | None] = (0, None)
    for name in shipped_names():
        preset = shipped(name)
        if not preset.console or preset.extends:
            continue
        lines = 0
        names: set[str] = set()
        for entry in _Log(file, preset, Telling()).entries(TRIED_LINES):
            lines += 1
            names.update(entry.values)
        found = lines * len(preset.meaning(names))
        if found > best[0]:
            best = (found, preset)
    return best[1]


class _Log:
    """One log, read line by line with the patterns of a preset."""

    def __init__(self, file: Found, preset: Preset, telling: Telling, part: int = 0) -> None:
        self._file, self._telling, self._part = file, telling, part
        self._patterns = [
            (one, re.compile(one.line), None if one.pair is None else re.compile(one.pair))
            for one in preset.console
        ]
        self._step: float | None = None
        """The step of the last header line."""
        self._counted = 0
        """Lines without any step so far."""
        self._known: frozenset[str] = frozenset()
        """Names of the metrics of the last such line."""

    def entries(self, most: int | None = None) -> Iterator[Entry]:
        """Yield what is found in the lines, or in the first `most` of them.

        Raises:
            InputError: a line is torn, or has a decimal comma.
        """
        ending = Ending()
        for number, raw, _ in lines_of(self._file, limited=False):
            if most is not None and number > most:
                return
            # A progress bar writes over its line.
            for piece in raw.decode("utf-8", "replace").strip("\r\n").split("\r"):
                text = RAY.sub("", COLOURS.sub("", piece))
                if len(text) > LONGEST_MATCHED:
                    what = "a line was too long for the patterns"
                    self._telling.tell(what, self._file.name, number)
                    continue
                entry = self._first_match(text, number)
                if entry is not None and entry.values:
                    ending.clear()
                    yield entry
                    continue
                self._refuse_torn(text, number)
                ending.add(text)
        self._telling.fail(ending.error())

    def _first_match(self, text: str, number: int) -> Entry | None:
        for console, line, pair in self._patterns:
            match = line.search(text)
            if match is not None:
                return self._entry(console, match.groupdict(), pair, number)
        return None

    def _entry(
        self,
        console: Console,
        groups: Mapping[str, str | None],
        pair: re.Pattern[str] | None,
        number: int,
    ) -> Entry | None:
        """Return the line's values; None if it is a header, whose step is noted."""
        if (text := groups.get("json")) is not None:
            return self._of_json(text, number)
        texts = {name: text for name, text in groups.items() if name not in GROUPS}
        for found in pair.finditer(groups.get("pairs") or "") if pair is not None else ():
            texts[found["key"].strip()] = found["value"]
        values = {
            f"{console.prefix}{name}": value
            for name, text in texts.items()
            if (value := self._value(text, name, number)) is not None
        }
        step = _number(groups.get("step"))
        if not values:
            self._step = self._step if step is None else step
            return None
        if step is None and self._step is None:
            self._counted += not console.with_last
            self._known = frozenset(texts)
            what = "the lines have no step, so they are counted from 1"
            self._telling.tell(what, self._file.name)
            step = self._counted
        return Entry(self._step if step is None else step, values, None, self._part)

    def _of_json(self, text: str, number: int) -> Entry | None:
        try:
            row = parsed(text)
        except ValueError:
            what = "the object in the line is not JSON and was left out"
            self._telling.tell(what, self._file.name, number)
            return None
        if not isinstance(row, Mapping):
            return None
        return entry_of(row, self._telling, self._file.name, number, part=self._part)

    def _value(self, text: str | None, name: str, number: int) -> float | None:
        """Return a metric's number. Raises InputError for one with a decimal comma."""
        if text is not None and DECIMAL_COMMA.fullmatch(text.strip()):
            place = f"{self._file.name}:{number}"
            raise InputError(
                f"{place}: `{shortened(name)}` is {shortened(text)}, with a decimal comma",
                "write numbers with a decimal point",
            )
        return _number(text)

    def _refuse_torn(self, text: str, number: int) -> None:
        """Raise InputError if a line that fits no pattern is a part of one like those counted."""
        if not self._counted or text.count("{") == text.count("}"):
            return
        if any(re.search(rf"['\"]{re.escape(name)}['\"]\s*:", text) for name in self._known):
            raise InputError(
                f"{self._file.name}:{number}: the line is torn, and without steps the lines after "
                "it cannot be counted",
                "log the step, or import a file that the framework writes",
            )


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
