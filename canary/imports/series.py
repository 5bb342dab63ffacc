"""Gathers a source's entries by step: the last value written wins, and every repair is told."""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from canary.errors import InputError
from canary.imports.axis import WHEN, one_run, step_in, step_names
from canary.imports.entries import LATEST, Entry, Telling, counted, listed, place_of, shortened
from canary.imports.preset import Preset
from canary.record.curves import LARGEST_STEP

MOST_VALUES = 2_000_000
MOST_STEPS = 50_000
"""A record of more would be too large for the reporting job."""
MOST_NAMES = 10_000
LONGEST_NAME = 300
ONE_RUN = (
    "write one run per file, or call the column `run` and add --run; a table needs one column per "
    "metric"
)


@dataclass
class Series:
    """A run's metrics by name and step."""

    values: dict[str, dict[int, float | None]] = field(default_factory=dict)
    """None: the source has a null at this step."""
    times: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Step -> the process that wrote it, and when, in seconds since the epoch."""


def _by_step(
    entries: Sequence[Entry], names: Sequence[str], telling: Telling, *, numbered: bool
) -> Series:
    """Put entries into a `Series`. Another file, or a file that goes back and writes a step again,
    is of a new process."""
    series, processes, unordered = Series(), 0, False
    latest: dict[tuple[int, str], int] = {}
    """Part and name -> the step of its newest value."""
    process_of: dict[int, int] = {}
    again: Counter[int] = Counter()
    """Step -> values that were written again."""
    for row, entry in enumerate(entries, 1):
        step = row if entry.step is None and numbered else _step_of(entry, names, telling)
        if step is None:
            continue
        values = {name: value for name, value in entry.values.items() if name not in names}
        back = {name for name in values if latest.get((entry.part, name), -1) > step}
        unordered = unordered or bool(back)
        if entry.part not in process_of or any(step in series.values.get(one, ()) for one in back):
            process_of[entry.part] = processes
            processes += 1
        process, written = process_of[entry.part], entry.time or 0.0
        if 0 < written <= LATEST and series.times.get(step, (None,))[0] != process:
            series.times[step] = (process, written)
        for name, value in values.items():
            latest[entry.part, name] = step
            if len(name) > LONGEST_NAME:
                telling.tell(f"a name of more than {LONGEST_NAME} characters was left out")
                continue
            by_step = series.values.setdefault(name, {})
            # A row of an evaluation repeats values such as the epoch; a resumed run goes back.
            if step in by_step and (name in back or differ(by_step[step], value)):
                again[step] += 1
            by_step[step] = value
    if again:
        first, last = min(again), max(again)
        words = counted(again.total(), "value was", "values were")
        where = f"step {first}" if first == last else f"steps {first} to {last}"
        if 1 < len(again) <= last - first:
            where = f"{len(again)} steps from {first} to {last}"
        telling.tell(f"{words} written again at {where}: the last one is used")
    elif unordered:
        telling.tell("the steps are not in order and were sorted")
    if numbered:
        telling.tell("the rows have no step, so they are counted from 1")
    return series


def _step_of(entry: Entry, names: Sequence[str], telling: Telling) -> int | None:
    given, _ = step_in(entry, names)
    if given is None:
        telling.tell("a row without a step was left out")
    elif not math.isfinite(given) or given != int(given) or not 0 <= given < LARGEST_STEP:
        telling.tell(f"a row with the step {given:g} was left out")
    else:
        return int(given)
    return None


def gather(
    entries: Iterable[Entry],
    telling: Telling,
    preset: Preset | None,
    run: str | None = None,
    source: str = "the source",
    *,
    is_store: bool = False,
) -> Series:
    """Gather a reader's entries of one run by step. A store's reader has picked the run.

    Raises:
        InputError: there are too many steps, several runs, or steps that cannot be told.
    """
    held = [entry if preset is None else _of_preset(entry, preset) for entry in entries]
    rows = [entry for entry in held if entry.step is None]
    names = step_names(rows, preset, source, telling)
    if not is_store:
        axes = () if preset is None else preset.step
        held = one_run(held, names, axes, run, source, telling)
        rows = [entry for entry in held if entry.step is None]
    numbered = bool(rows) and not names
    _refuse_mixed(held, names, source, numbered=numbered)
    series = _by_step(held, names, telling, numbered=numbered)
    if len({step for by_step in series.values.values() for step in by_step}) > MOST_STEPS:
        raise InputError(
            f"the source has more than {MOST_STEPS:,} steps", "name a shorter run, or log less"
        )
    if preset is not None:
        _leave_out_other_axes(series, preset, telling)
    _tell_nulls(series, telling, is_nan=preset is not None and preset.null_is_nan)
    return series


def _refuse_mixed(
    entries: Sequence[Entry], names: Sequence[str], source: str, *, numbered: bool
) -> None:
    """Refuse rows of one step whose texts differ where a metric has two values: they are of two
    runs, or of a table with a row per metric. A moment or a duration tells no rows apart. If the
    rows are `numbered`, texts that come in turn do so."""
    labels = {name for entry in entries for name in entry.texts}
    for label in sorted(labels if numbered else ()):
        texts = [entry.texts.get(label, "") for entry in entries]
        turns = [shortened(text) for text, _ in itertools.groupby(texts)]
        words = {*turns} - {"True", "False", "true", "false"}
        if all(texts) and words and len({*turns}) < len(turns):
            shown = f"{turns[0]}, {turns[1]}"
            what = f"{source} has no step, and its rows differ in `{shortened(label)}`: {shown}"
            raise InputError(what, ONE_RUN)
    labels -= {name for entry in entries for name in entry.values}
    first: dict[tuple[float, str], Entry] = {}
    for entry in entries if labels else ():
        step, _ = step_in(entry, names)
        for name, value in entry.values.items():
            if step is None or value is None or name in names:
                continue
            other = first.setdefault((step, name), entry)
            if not differ(other.values[name], value):
                continue
            alike = other.values.keys() == entry.values.keys()
            for label in sorted(labels):
                pair = [one.texts.get(label, "") for one in (other, entry)]
                is_apart = pair[0] != pair[1] and (alike or all(pair))
                if is_apart and not all(map(WHEN.fullmatch, pair)):
                    shown = ", ".join(shortened(text or "empty") for text in pair)
                    raise InputError(
                        f"{place_of(source, entry.line)}: `{shortened(name)}` has two values at "
                        f"step {step:g}, in rows that differ in `{shortened(label)}`: {shown}",
                        ONE_RUN,
                    )


def differ(was: float | None, now: float | None) -> bool:
    """Whether two values differ; two NaN do not."""
    return was != now and (was == was or now == now)


def bounded(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries while they are few enough to be held.

    Raises:
        InputError: they have too many values or names.
    """
    count = 0
    names: set[str] = set()
    for entry in entries:
        count += max(1, len(entry.values) + len(entry.texts))
        if count > MOST_VALUES:
            raise InputError(
                f"the source has more than {MOST_VALUES:,} values",
                "name a shorter run, or log less",
            )
        if not names.issuperset(entry.values):
            names.update(entry.values)
        if len(names) > MOST_NAMES:
            raise InputError(
                f"the source has more than {MOST_NAMES:,} metrics",
                "log values by step, not by name",
            )
        yield entry


def _of_preset(entry: Entry, preset: Preset) -> Entry:
    """Return an entry with the names that a preset means."""
    values = {preset.inner(name): value for name, value in entry.values.items()}
    for kind in preset.row_kinds:
        if kind.has in values:
            values = {
                f"{kind.prefix}{name}" if fnmatch.fnmatchcase(name, kind.names) else name: value
                for name, value in values.items()
            }
    return entry._replace(values=values)


def _leave_out_other_axes(series: Series, preset: Preset, telling: Telling) -> None:
    for pattern in preset.other_axis:
        other = fnmatch.filter(series.values, pattern)
        for name in other:
            del series.values[name]
        if other:
            words = counted(len(other), "metric was", "metrics were")
            telling.tell(f"{words} left out: the step of {pattern} is not the training step")


def _tell_nulls(series: Series, telling: Telling, *, is_nan: bool) -> None:
    """Drop nulls, or read them as NaN; tell them and the numbers that are not finite."""
    every = series.values.values()
    null_steps = [(found, step) for found in every for step in found if found[step] is None]
    if is_nan and null_steps:
        for found, step in null_steps:
            found[step] = math.nan
        many = f"{len(null_steps):,} nulls"
        telling.tell(f"{many} were read as NaN: this framework writes NaN as null")
    nulls: list[str] = []
    wild: dict[str, int] = {}
    for name, by_step in list(series.values.items()):
        kept = {step: value for step, value in by_step.items() if value is not None}
        series.values[name] = {**kept}
        if len(kept) < len(by_step):
            nulls.append(name)
        if not kept:
            del series.values[name]
        if count := sum(not math.isfinite(value) for value in kept.values()):
            wild[name] = count
    if nulls:
        telling.tell(f"null in {listed(nulls)}: no value at these steps")
    if wild:
        words = counted(sum(wild.values()), "value is", "values are")
        telling.tell(f"{words} NaN or infinite, in {listed(list(wild))}")
