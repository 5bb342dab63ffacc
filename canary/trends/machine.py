"""What changed on the machine between two stored runs: the first suspects of a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from canary.compare.exact.changes import environment_changes
from canary.errors import printable
from canary.trends.model import MachineChange
from canary.trends.runs import RunFacts

NAMES = {"gpus": "gpu", "device.name": "gpu", "cpu_usable": "usable cores", "cpu_count": "cores"}
LONGEST = 60
RUNS_BEFORE = 3
"""So many runs after a change of the machine, a change of a metric still names it."""
UNIMPORTANT = ("device.type", "ram_bytes", "gpu_reason")
"""Facts that follow from others, or that the host's kernel changes by a little."""


MachineChanges = Mapping[int, tuple[MachineChange, ...]]
"""What changed on the machine before a run, by the run's place."""


def changes_of(facts: Sequence[RunFacts]) -> MachineChanges:
    """Return all changes of the machine over the runs, given oldest first."""
    found = {}
    for place, (before, now) in enumerate(pairwise(facts), start=1):
        if changes := tuple(_between(before, now)):
            found[place] = changes
    return found


def suspects(machines: MachineChanges, place: int, first: int, last: int) -> list[MachineChange]:
    """Return what changed on the machine where a series changed, the nearest first.

    Args:
        machines: all changes of the machine.
        place: first run of the new level.
        first: first run that may be of the new level.
        last: first run that surely is.
    """
    earliest = max(1, min(first, place - RUNS_BEFORE))
    found: dict[str, MachineChange] = {}
    for other in sorted(range(earliest, last + 1), key=lambda other: abs(other - place)):
        for change in machines.get(other, ()):
            found.setdefault(change.name, replace(change, runs_before=place - other))
    return list(found.values())


def _between(before: RunFacts, now: RunFacts) -> Iterator[MachineChange]:
    if before.record.env == now.record.env:
        return
    changes = environment_changes(before.record, now.record)
    for change in sorted(changes, key=lambda change: change.cosmetic):
        if change.key in UNIMPORTANT or (change.cosmetic and change.key.startswith("packages.")):
            continue
        name = NAMES.get(change.key, change.key)
        name = name.removeprefix("packages.").removeprefix("variables.")
        yield MachineChange(_cut(name), _text(change.baseline), _text(change.current))


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        names = [str(one.get("name") or "unknown") for one in value]
        value = f"{len(names)} x {names[0]}" if len(names) > 1 else names[0] if names else None
    return _cut("none" if value is None else str(value))


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
