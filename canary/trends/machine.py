"""What changed on the machine between two stored runs: the first suspects of a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.compare.exact.changes import environment_changes
from canary.errors import printable
from canary.trends.model import MachineChange
from canary.trends.runs import RunFacts

NAMES = {"gpus": "gpu", "device.name": "gpu", "cpu_usable": "usable cores", "cpu_count": "cores"}
LONGEST = 60
UNIMPORTANT = ("device.type", "ram_bytes", "gpu_reason")
"""Facts that follow from others, or that the host's kernel changes by a little."""


def machine_changes(
    facts: Sequence[RunFacts], place: int, first: int, last: int
) -> tuple[MachineChange, ...]:
    """Return what differs at a place, then what differs where the change may also have happened.

    Args:
        facts: the runs, oldest first.
        place: first run of the new level.
        first: first run that may be of the new level.
        last: first run that surely is.
    """
    places = sorted(range(max(1, first), last + 1), key=lambda other: abs(other - place))
    found: dict[str, MachineChange] = {}
    for other in places:
        for change in _between(facts[other - 1], facts[other]):
            found.setdefault(change.name, change)
    return tuple(found.values())


def _between(before: RunFacts, now: RunFacts) -> Iterator[MachineChange]:
    changes = environment_changes(before.record, now.record)
    for change in sorted(changes, key=lambda change: change.cosmetic):
        if change.key in UNIMPORTANT:
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
