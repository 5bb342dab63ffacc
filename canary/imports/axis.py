"""The step of a row, and the runs in a source: which value counts the steps, where a run begins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, no_step, plain, shortened
from canary.imports.preset import Preset

OF_WANDB = "_step"
"""W&B's count of the calls of its `log`."""
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
    OF_WANDB,
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
WHEN = re.compile(
    r"(\d+ days?, )?([\d/-]{8,10}[T ])?\d+:\d\d(:\d\d)?([.,]\d+)?( ?(Z|UTC|[+-]\d\d:?\d\d))?|"
    r"(\d+h ?)?(\d+m(in)? ?)?[\d.]+ ?m?s|"
)
"""A moment or a duration as programs print it."""
LIKE_A_STEP = re.compile(r"(^|[/_.])(total_)?(time)?(steps?|iterations?|iters?|updates?)($|[/_.])")
LEAST_COUNTED = 5
"""Rows after which a value that counts upwards may be the step."""


def step_names(
    rows: Sequence[Entry], preset: Preset | None, source: str, telling: Telling
) -> tuple[str, ...]:
    """Return the names of the step among the values of rows. A row's step is its first of them.

    Raises:
        InputError: a step is no number, two names count differently, or an unknown name may be the
            step.
    """
    present = dict.fromkeys(name for row in rows for name in row.values)
    asked = () if preset is None else preset.step
    mine = [name for name in asked if name in present]
    usual = sorted(
        (name for name in present if plain(name) in STEP_NAMES and name not in mine),
        key=lambda name: (STEP_NAMES.index(plain(name)), name != plain(name)),
    )
    filled = [row.values for row in rows if not {*mine, *usual}.issuperset(row.values)]
    group = mine or usual[:1]
    whole = [name for name in usual if all(name in values for values in filled)]
    if whole and not mine:
        # A step that each epoch counts anew gives way to one that goes on.
        forward = (name for name in whole if plain(name) != OF_WANDB and _goes_on(filled, name))
        group = [next(forward, whole[0])]
    _refuse_unread(rows, group, asked, source)
    if not group:
        _refuse_unknown(rows, present, source)
        return ()
    apart = [name for name in (*mine[1:], *usual) if _differs(filled, name, group)]
    for name in apart:
        words = f"the step is `{shortened(group[0])}`: `{shortened(name)}` counts differently"
        if plain(name) == plain(group[0]):
            raise InputError(f"{source}: {words}", "leave one of the two out")
        if plain(name) != OF_WANDB:
            telling.tell(words, source)
    if whole and not mine:
        return (group[0],)
    group += [name for name in usual if name not in (*group, *apart)]
    other = [values for values in filled if not any(name in values for name in group)]
    named = next((name for values in other for name in usual if name in values), None)
    if named is not None and not mine:
        raise InputError(
            f"{source}: some rows have the step `{shortened(group[0])}`, others "
            f"`{shortened(named)}`, and the two count differently",
            f"name one in a preset, such as `step: [{shortened(group[0])}]`, and add --preset FILE",
        )
    return tuple(group)


def _goes_on(filled: Sequence[Mapping[str, float | None]], name: str) -> bool:
    """Whether a name of the step never goes back."""
    counts = (values[name] for values in filled)
    return all(
        was is not None and now is not None and was <= now
        for was, now in itertools.pairwise(counts)
    )


def _differs(filled: Sequence[Mapping[str, float | None]], name: str, group: Sequence[str]) -> bool:
    """Whether a row has a name of the step with another value than the group's."""
    for values in filled:
        mine = next((values[one] for one in group if one in values), None)
        if name in values and mine is not None and values[name] != mine:
            return True
    return False


def _refuse_unread(
    rows: Sequence[Entry], group: Sequence[str], asked: Sequence[str], source: str
) -> None:
    """Refuse a row whose step is there but is no number. Words such as `final` stand for none."""
    for row in rows:
        if not row.values or any(name in row.values for name in group):
            continue
        for name, text in row.texts.items():
            known = plain(name) in STEP_NAMES or name in asked
            counts = re.search(r"\d", text) and not WHEN.fullmatch(text)
            needed = not group and (known or LIKE_A_STEP.search(plain(name)))
            if (known and needed) or (counts and (known or needed)):
                raise no_step(name, text, source, row.line)


def _refuse_unknown(rows: Sequence[Entry], names: Iterable[str], source: str) -> None:
    """Refuse rows that a value of another name counts: numbered from 1 they get wrong steps."""
    for name in names:
        if len(rows) < LEAST_COUNTED or not LIKE_A_STEP.search(plain(name)):
            continue
        counts = [row.values.get(name) for row in rows]
        if all(
            was is not None and now is not None and was < now and now == now // 1
            for was, now in itertools.pairwise(counts)
        ):
            raise InputError(
                f"{source} has no step of a known name, but `{shortened(name)}` may be one",
                f"name it in a preset: `step: [{shortened(name)}]`, and add --preset FILE",
            )


def step_in(entry: Entry, names: Sequence[str]) -> tuple[float | None, str]:
    """Return an entry's step, and the name that it has there."""
    if entry.step is not None:
        return entry.step, ""
    found = next((name for name in names if name in entry.values), "")
    return entry.values.get(found), found


LEAST_BEFORE, LEAST_AFTER = 3, 2
"""Steps before and after a new start. Fewer are written again by ranks or a summary."""
MOST_BACK = 0.1
"""Share of a run's entries with an earlier step than the one before. Beyond it they are sorted."""
SHOWN, SAID = 5, 3
EPOCH = "epoch"


@dataclass
class _Run:
    name: str
    entries: list[Entry] = field(default_factory=list)
    steps: set[float] = field(default_factory=set)
    first_row: int = 0
    back: int = 0
    """Entries with an earlier step than the one before."""

    def add(self, entry: Entry, step: float | None) -> None:
        self.entries.append(entry)
        if step is not None:
            self.steps.add(step)

    @property
    def shown(self) -> str:
        """Its name, steps and place."""
        if not self.first_row:
            return f"{shortened(self.name)} ({len(self.steps)} steps)"
        last = self.first_row + len(self.entries) - 1
        steps = f"steps {min(self.steps, default=0):.0f} to {max(self.steps, default=0):.0f}"
        start = self.entries[0].line
        place = f"rows {self.first_row} to {last}" if start is None else f"from line {start}"
        return f"{self.name} ({steps}, {place})"


def one_run(
    entries: Sequence[Entry],
    names: Sequence[str],
    axes: Sequence[str],
    asked: str | None,
    source: str,
    telling: Telling,
) -> list[Entry]:
    """Return the entries of the only run, or of the one that is asked for by name or number.
    `names`: of the step; `axes`: those of them that count for themselves, as a preset says.

    Raises:
        InputError: there are several and none was asked for, or there is no such run.
    """
    is_grouped = len({entry.group for entry in entries}) > 1 and not any(it.run for it in entries)
    if is_grouped and _written_twice(entries, names):
        entries = [entry._replace(run=entry.group or "unnamed") for entry in entries]
    runs: dict[str, _Run] = {}
    for entry in entries:
        runs.setdefault(entry.run, _Run(entry.run)).add(entry, step_in(entry, names)[0])
    found = list(runs.values())
    if len(found) < 2 and not (found and found[0].name):
        found = _starts(entries, names, axes)
    if asked is None and len(found) < 2:
        return list(entries)
    chosen = [run for run in found if run.name == asked]
    if asked is not None and len(found) == 1 and not chosen:
        raise InputError(f"{source} holds one run, not {shortened(asked)!r}", "leave --run out")
    if not chosen:
        shown = ", ".join(run.shown for run in found[:SHOWN])
        more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
        said = "".join(f"; {sentence}" for sentence in telling.sentences()[:SAID])
        raise InputError(
            f"{source} holds {len(found)} runs: {shown}{more}{said}",
            f"name one, such as --run {shortened(found[0].name)}",
        )
    telling.tell(f"of {len(found)} runs this one was read: {chosen[0].shown}", source)
    return chosen[0].entries


def _starts(entries: Sequence[Entry], names: Sequence[str], axes: Sequence[str]) -> list[_Run]:
    """Return the runs that were written one after the other. One begins where the steps go back to
    the first step or before it, and go on from there; a resumed run goes back less far. Steps in no
    order are one run if no metric has two values at a step. An epoch counts like a step: a log
    without steps is numbered through."""
    runs = [_Run("1", first_row=1)]
    seen: dict[str, tuple[float, float, int]] = {}
    """Metric, or name of a row's step -> first and latest step, number of steps."""
    for row, entry in enumerate(entries, 1):
        step, named = step_in(entry, names)
        # Rows go forward as a whole; where a format has the step, each metric goes for itself.
        keys = [named if named in axes else ""] if entry.step is None else [*entry.values]
        at = {} if step is None else dict.fromkeys(keys, step)
        if (epoch := entry.values.get(EPOCH)) is not None:
            at[EPOCH] = epoch
        for key, place in at.items():
            first, latest, count = seen.get(key, (place, place, 1))
            if place <= first and place < latest and count >= LEAST_BEFORE:
                runs.append(_Run(str(len(runs) + 1), first_row=row))
                seen = {}
                break
        runs[-1].back += any(at[key] < seen[key][1] for key in at if key in seen)
        for key, place in at.items():
            first, latest, count = seen.get(key, (place, place, 1))
            seen[key] = (first, max(place, latest), count + (place > latest))
        runs[-1].add(entry, step)
    whole = runs[:1]
    for run in runs[1:]:
        if len(run.steps) >= LEAST_AFTER:
            run.name = str(len(whole) + 1)
            whole.append(run)
        else:
            whole[-1].entries += run.entries
    disordered = any(run.back > MOST_BACK * len(run.entries) for run in whole)
    if len(whole) > 1 and disordered and not _written_twice(entries, names):
        return [_Run("1", list(entries), first_row=1)]
    return whole


def _written_twice(entries: Sequence[Entry], names: Sequence[str]) -> bool:
    """Whether any metric has two values at a step."""
    steps = [(step_in(entry, names)[0], entry.values) for entry in entries]
    found = [(name, step) for step, values in steps for name in values if name not in names]
    return len({*found}) < len(found)
