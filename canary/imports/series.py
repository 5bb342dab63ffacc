"""Gathers a source's entries by step; the last value written wins. Refuses several runs."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from canary.errors import InputError
from canary.imports.entries import (
    LATEST,
    Entry,
    Telling,
    counted,
    listed,
    place_of,
    plain,
    shortened,
)
from canary.imports.preset import Preset
from canary.record.curves import LARGEST_STEP

MOST_VALUES = 2_000_000
MOST_STEPS = 50_000
"""A record of more would be too large for the reporting job."""
MOST_NAMES = 10_000
LONGEST_NAME = 300
WHEN = re.compile(
    r"(\d+ days?, )?([\d/-]{8,10}[T ])?\d+:\d\d(:\d\d)?([.,]\d+)?( ?(Z|UTC|[+-]\d\d:?\d\d))?|"
    r"(\d+h ?)?(\d+m(in)? ?)?[\d.]+ ?m?s|"
)
"""A moment or a duration as programs print it."""
STEP_NAMES = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "training_step",
    "train/step",
    "training/step",
    "train_step",
    "optimizer_step",
    "num_updates",
    "_step",
    "current_steps",
    "global_steps",
    "steps",
    "iteration",
    "train/iteration",
    "training_iteration",
    "iterations",
    "iter",
)
"""Names of a row's step in any case, the surest first."""
OF_WANDB = "_step"
LEAST_BEFORE = 3
"""Steps of a metric before it begins again. Fewer are written again by ranks or a summary."""
EPOCH = "epoch"
NAME_IT = "name it in a preset, such as `step: [iteration]`, and add --preset FILE"


@dataclass
class Series:
    """A run's metrics by name and step."""

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    times: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Step -> the process that wrote it, and when, in seconds since the epoch."""


def gather(
    entries: Iterable[Entry], telling: Telling, preset: Preset | None, source: str = "the source"
) -> Series:
    """Gather a reader's entries by step. The last value written wins.

    Raises:
        InputError: there are too many steps, several runs, or steps that cannot be told.
    """
    held = [entry if preset is None else _of_preset(entry, preset, telling) for entry in entries]
    names = _step_names([entry for entry in held if entry.step is None], preset, source)
    held = [_with_step(entry, names, source) for entry in held]
    _refuse_mixed(held, source)
    _require_one_run(held, source)
    series = _by_step(held, telling)
    if len({step for by_step in series.values.values() for step in by_step}) > MOST_STEPS:
        raise InputError(
            f"the source has more than {MOST_STEPS:,} steps", "name a shorter run, or log less"
        )
    wild = {
        name: sum(not math.isfinite(value) for value in by_step.values())
        for name, by_step in series.values.items()
    }
    if any(wild.values()):
        words = counted(sum(wild.values()), "value is", "values are")
        where = listed([name for name, count in wild.items() if count])
        telling.tell(f"{words} NaN or infinite, in {where}")
    return series


def _step_names(rows: Sequence[Entry], preset: Preset | None, source: str) -> tuple[str, ...]:
    """Return the names of the step in rows. A row's step is its first of them: those that the
    preset names, else the surest name that every row has.

    Raises:
        InputError: no name of the step is known, or none stands in every row.
    """
    if not rows:
        return ()
    present = list(dict.fromkeys(name for row in rows for name in (*row.values, *row.texts)))
    mine = [name for name in (() if preset is None else preset.step) if name in present]
    if mine:
        return tuple(mine)
    usual = sorted(
        (name for name in present if plain(name) in STEP_NAMES),
        key=lambda name: STEP_NAMES.index(plain(name)),
    )
    if not usual:
        raise InputError(f"{source} has no step of a known name, only {listed(present)}", NAME_IT)
    named = [row for row in rows if any(name in row.values for name in usual)]
    whole = [name for name in usual if all(name in row.values for row in named)]
    if not whole and len(usual) > 1:
        what = f"{source} has a step in some rows as `{shortened(usual[0])}`, in others as"
        raise InputError(f"{what} `{shortened(usual[1])}`", NAME_IT)
    # A step that each epoch counts anew gives way to one that goes on, but not to W&B's own count.
    forward = (name for name in whole if plain(name) != OF_WANDB and _goes_on(named, name))
    return tuple([next(forward, whole[0])] if whole else usual[:1])


def _goes_on(rows: Sequence[Entry], name: str) -> bool:
    """Whether a name of the step never goes back."""
    counts = [value for row in rows if (value := row.values[name]) is not None]
    return all(was <= now for was, now in pairwise(counts))


def _with_step(entry: Entry, names: Sequence[str], source: str) -> Entry:
    """Return an entry with its step in place of the values that name it.

    Raises:
        InputError: its step is there, but is no number.
    """
    step = entry.step
    name = next((one for one in names if one in entry.values or one in entry.texts), None)
    if step is None and name is not None:
        if name not in entry.values:
            raise InputError(
                f"{place_of(source, entry.line)}: the step `{shortened(name)}` is "
                f"{shortened(entry.texts[name])}, not a number",
                "write steps as whole numbers",
            )
        step = entry.values[name]
    values = {name: value for name, value in entry.values.items() if name not in names}
    return entry._replace(step=step, values=values)


def _require_one_run(entries: Sequence[Entry], source: str) -> None:
    """Refuse a metric that goes back to its first step: a second run begins there. A resumed run
    goes back less far. An epoch counts like a step, because lines without steps are numbered."""
    seen: dict[str, tuple[float, float, int]] = {}
    """Metric -> first and latest step, number of steps."""
    for entry in entries:
        for name, value in entry.values.items():
            place = value if name == EPOCH else entry.step
            if place is None or place < 0:
                continue
            first, latest, count = seen.get(name, (place, place, 1))
            if place <= first and place < latest and count >= LEAST_BEFORE:
                kind = "epochs" if name == EPOCH else "steps"
                raise InputError(
                    f"{place_of(source, entry.line)}: the {kind} begin again at {place:g}, so a "
                    "second run begins there",
                    "write one run per file",
                )
            seen[name] = (first, max(place, latest), count + (place > latest))


def _by_step(entries: Sequence[Entry], telling: Telling) -> Series:
    """Put entries into a `Series`. Another file, or a row that goes back and writes a step again,
    is of a new process."""
    series, process, part, again = Series(), 0, 0, 0
    latest: dict[str, int] = {}
    for entry in entries:
        step = _whole(entry.step, telling)
        if step is None:
            continue
        back = False
        for name, value in entry.values.items():
            if value is None:
                telling.tell(f"null in {shortened(name)}: no value at these steps")
                continue
            if len(name) > LONGEST_NAME:
                telling.tell(f"a name of more than {LONGEST_NAME} characters was left out")
                continue
            by_step = series.values.setdefault(name, {})
            back = back or (step in by_step and latest[name] > step)
            again += step in by_step and differ(by_step[step], value)
            by_step[step] = value
            latest[name] = step
        if back or entry.part != part:
            process, part = process + 1, entry.part
        written = entry.time or 0.0
        if 0 < written <= LATEST and series.times.get(step, (None,))[0] != process:
            series.times[step] = (process, written)
    if again:
        words = counted(again, "value was", "values were")
        telling.tell(f"{words} written again: the last one is used")
    return series


def _whole(step: float | None, telling: Telling) -> int | None:
    if step is None:
        telling.tell("a row without a step was left out")
    elif not math.isfinite(step) or step != int(step) or not 0 <= step < LARGEST_STEP:
        telling.tell(f"a row with the step {step:g} was left out")
    else:
        return int(step)
    return None


def _refuse_mixed(entries: Sequence[Entry], source: str) -> None:
    """Refuse rows of one step whose texts differ where a metric has two values: they are of two
    runs, or of a table with a row per metric. A moment or a duration tells no rows apart."""
    labels = sorted({name for entry in entries for name in entry.texts})
    first: dict[tuple[float, str], Entry] = {}
    for entry in entries if labels else ():
        for name, value in entry.values.items():
            if entry.step is None or value is None:
                continue
            other = first.setdefault((entry.step, name), entry)
            if not differ(other.values[name], value):
                continue
            alike = other.values.keys() == entry.values.keys()
            for label in labels:
                pair = [one.texts.get(label, "") for one in (other, entry)]
                is_apart = pair[0] != pair[1] and (alike or all(pair))
                if is_apart and not all(map(WHEN.fullmatch, pair)):
                    shown = ", ".join(shortened(text or "empty") for text in pair)
                    raise InputError(
                        f"{place_of(source, entry.line)}: `{shortened(name)}` has two values at "
                        f"step {entry.step:g}, in rows that differ in `{shortened(label)}`: "
                        f"{shown}",
                        "write one run per file, and one column per metric",
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


def _of_preset(entry: Entry, preset: Preset, telling: Telling) -> Entry:
    """Return an entry with the names and numbers that a preset means."""
    values = {preset.inner(name): value for name, value in entry.values.items()}
    for kind in preset.row_kinds:
        if kind.has in values:
            values = {
                f"{kind.prefix}{name}" if fnmatch.fnmatchcase(name, kind.names) else name: value
                for name, value in values.items()
            }
    for pattern in preset.other_axis:
        for name in fnmatch.filter(values, pattern):
            del values[name]
            telling.tell(f"{shortened(name)} was left out: its step is not the training step")
    nulls = [name for name, value in values.items() if value is None and preset.null_is_nan]
    if nulls:
        telling.tell("a null was read as NaN: this framework writes NaN as null")
    return entry._replace(values=values | dict.fromkeys(nulls, math.nan))
