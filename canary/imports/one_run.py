"""Several runs in one source: they are found and named, and one of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from canary.errors import InputError
from canary.imports.axis import step_in
from canary.imports.entries import Entry, Telling, shortened

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
