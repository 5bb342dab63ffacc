"""What a matrix will do, before it starts: cells, launches, the minutes they took before; and
which of them fit its budget."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from canary.baseline.comparability import slug
from canary.baseline.history import VERSION, entries, is_history
from canary.campaign.pairs import duration
from canary.campaign.worktrees import commit_of, repository_of
from canary.config.load import LoadedConfig, load_config
from canary.errors import ConfigError, MachineError, RecordError, UsageError
from canary.matrix.cells import Cell
from canary.matrix.outcomes import LONGEST_S, UNREADABLE
from canary.record import jsonio

RUNS_OF = ("run", "exec")
"""Verbs whose runs the history stores."""
TOOK = "took.json"
"""In the history: what cells took, and when."""
DECIDED = "not known"
"""Launches of a verb that decides on the way, or of a config that is read elsewhere."""


@dataclass(frozen=True)
class Planned:
    """A cell before it starts."""

    cell: Cell
    launches: str
    devices: int
    """GPUs, or ranks on a CPU."""
    seconds: float | None
    """What it took last time; None if that is not known."""
    newest: str | None
    """When it ran last, as the names of runs begin; None if that is not known."""
    mark: str = ""
    """Hash of the cell and its config."""
    problem: str = ""
    """Why it cannot run; other cells can."""
    state: str = ""
    """That it has run already."""


def planned(cell: Cell, history: Path | None) -> Planned:
    """Look up what a cell needs.

    Raises:
        ConfigError: its config cannot be used; names the cell.
    """
    loaded = _loaded(cell)
    launches = DECIDED
    if cell.verb in RUNS_OF and loaded is not None:
        launches = str(loaded.config.repeats)
    seconds, newest = _last(cell, history)
    config = None if loaded is None else loaded.config.model_dump(mode="json")
    text = jsonio.dumps([asdict(cell), config])
    mark = hashlib.sha256(text.encode()).hexdigest()
    devices, problem = cell.ranks * cell.nodes, _problem(cell.ref, Path.cwd())
    return Planned(cell, launches, devices, seconds, newest, mark, problem)


@functools.lru_cache
def _problem(ref: str | None, folder: Path) -> str:
    """Return why a commit cannot be checked out."""
    try:
        if ref is not None:
            commit_of(repository_of(folder), ref)
    except (UsageError, MachineError) as error:
        return error.message
    return ""


def _loaded(cell: Cell) -> LoadedConfig | None:
    """Load the config of a cell of the working folder. Another commit has its own."""
    if cell.config is None or cell.ref is not None:
        return None
    try:
        return load_config(Path(cell.config), cell.settings)
    except ConfigError as error:
        raise ConfigError(
            f"cell {cell.name}: {error.message.replace(' in --set', '')}",
            error.hint,
            file=error.file,
            key=error.key,
        ) from error


def _last(cell: Cell, history: Path | None) -> tuple[float | None, str | None]:
    """Return what a cell took last time, as its last matrix noted or its newest stored run says, on
    any machine type; and when it was last stored, or noted if its verb stores no run."""
    if history is None or not is_history(history):
        return None, None
    seconds, when = _noted(history).get(cell.name, (None, ""))
    if cell.verb not in RUNS_OF:
        return seconds, when or None
    found = [
        entry
        for folder in (history / VERSION / slug(cell.name)).glob("*")
        if folder.is_dir()
        for entry in entries(folder)
    ]
    try:
        newest = max(found, key=lambda entry: entry.path.name, default=None)
        if newest is None:
            return seconds, when or None
        seconds = seconds or float(newest.record().duration_seconds)
        return seconds if 0 <= seconds < LONGEST_S else None, max(newest.path.name, when)
    except RecordError:
        return None, None


def _noted(history: Path) -> dict[str, tuple[float | None, str]]:
    try:
        found = json.loads(jsonio.content_of(history / TOOK))
        took = {str(cell): (float(one[0] or 0.0), str(one[1])) for cell, one in found.items()}
    except UNREADABLE:
        return {}
    return {
        cell: (one[0] if 0 < one[0] < LONGEST_S else None, one[1]) for cell, one in took.items()
    }


def note(history: Path, took: Mapping[str, float | None], now: datetime) -> None:
    """Note in a history that cells were run, and the seconds that each took. None: as before."""
    if took and is_history(history):
        when, before = now.strftime("%Y%m%d-%H%M%S"), _noted(history)
        known = {cell: seconds or before.get(cell, (None,))[0] for cell, seconds in took.items()}
        found = before | {cell: (seconds, when) for cell, seconds in known.items()}
        jsonio.replace_file(history / TOOK, jsonio.dumps(found, indent=1) + "\n")


class Budget:
    """Device minutes that a matrix may use. A cell without a stored run is expected to take what
    the others take; the first of them all is started to learn it."""

    def __init__(self, minutes: float | None, plan: Sequence[Planned]) -> None:
        self.minutes = minutes
        self._expected = {
            one.cell.name: one.seconds * one.devices for one in plan if one.seconds is not None
        }
        self._devices = {one.cell.name: one.devices for one in plan}
        self._used: dict[str, float] = {}

    def expected(self, cell: str) -> float | None:
        """Return the device seconds that a cell will take; None if nothing is known."""
        known = self._used or self._expected
        mean = sum(known.values()) / len(known) if known else None
        return self._expected.get(cell, mean)

    def devices(self, cell: str) -> int:
        """Return how many devices a cell uses."""
        return self._devices.get(cell, 1)

    def used(self, cell: str, seconds: float) -> None:
        """Note what a try took."""
        self._used[cell] = self._used.get(cell, 0.0) + seconds * self.devices(cell)

    @property
    def spent(self) -> float:
        """Device seconds so far."""
        return sum(self._used.values())

    def allows(self, cell: str, running: Sequence[str]) -> bool:
        """Whether a cell fits beside what was used, and what still runs."""
        if self.minutes is None:
            return True
        if running and not (self._used or self._expected):
            return False
        planned = sum(self.expected(one) or 0.0 for one in (*running, cell))
        return self.spent + planned <= self.minutes * 60


def plan_document(name: str, cells: Sequence[Planned], budget: float | None) -> dict[str, Any]:
    """Return the plan as plain data."""
    return {
        "schema_version": 1,
        "name": name,
        "budget_device_minutes": budget,
        "cells": [
            {
                "cell": one.cell.name,
                "verb": one.cell.verb,
                "config": one.cell.config,
                "settings": one.cell.settings,
                "ref": one.cell.ref,
                "stack": one.cell.stack,
                "ranks": one.cell.ranks,
                "nodes": one.cell.nodes,
                "device": one.cell.device,
                "launches": int(one.launches) if one.launches.isdigit() else None,
                "devices": one.devices,
                "seconds": one.seconds,
                "problem": one.problem,
                "state": one.state,
            }
            for one in cells
        ],
    }


def plan_lines(cells: Sequence[Planned], budget: float | None) -> list[str]:
    """Return the plan as lines of text."""
    known = [one for one in cells if one.seconds is not None]
    minutes = sum((one.seconds or 0.0) * one.devices for one in known) / 60
    width = max(len(one.cell.name) for one in cells)
    fitting = {one.cell.name for one in (cells if budget is None else _fitting(cells, budget))}
    lines = [
        f"{one.cell.name:<{width}}  {one.cell.verb:<9}  launches: {one.launches}"
        + ("" if one.seconds is None else f", took {duration(one.seconds)} last time")
        + "".join(
            f", {words}"
            for words in (one.state, one.problem and f"invalid: {one.problem}")
            if words
        )
        + ("" if one.cell.name in fitting else ", does not fit the budget")
        for one in cells
    ]
    total = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    if all(one.launches.isdigit() for one in cells):
        total += f", {sum(int(one.launches) for one in cells)} launches"
    if known:
        total += f", about {_minutes(round(minutes, 1))}"
        total += "" if len(known) == len(cells) else f" for {len(known)} of them"
    else:
        total += "; the history does not say how long this takes"
    if budget is not None:
        total += f"; the budget is {_minutes(budget)}"
        if known:
            fit = len(fitting)
            total += f", about {fit} of {len(cells)} fit" if fit else ", no cell fits"
    return [*lines, total]


def _fitting(cells: Sequence[Planned], minutes: float) -> list[Planned]:
    """Return the cells that will fit a budget if each takes what is expected."""
    budget, fit = Budget(minutes, cells), []
    for one in cells:
        if budget.allows(one.cell.name, []):
            budget.used(one.cell.name, (budget.expected(one.cell.name) or 0.0) / one.devices)
            fit.append(one)
    return fit


def _minutes(count: float) -> str:
    return f"{count:g} device minute{'' if count == 1 else 's'}"


def oldest_first(plan: Sequence[Planned]) -> list[Planned]:
    """Return the plan with those first that ran longest ago: if a budget leaves cells out, the
    next matrix begins with them."""
    return sorted(plan, key=lambda one: one.newest or "")
