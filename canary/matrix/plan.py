"""What a matrix will do, before it starts: cells, launches, and the minutes they took before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from canary.baseline.comparability import slug
from canary.baseline.history import VERSION, entries, is_history
from canary.campaign.pairs import duration
from canary.config.load import LoadedConfig, load_config
from canary.errors import ConfigError, RecordError
from canary.matrix.cells import Cell
from canary.runner.run import plan_of

DECIDED = "as many as it needs"
"""Launches of a verb that decides on the way."""


@dataclass(frozen=True)
class Planned:
    """A cell before it starts."""

    cell: Cell
    launches: str
    devices: int
    """GPUs or, on a CPU, places."""
    seconds: float | None
    """What its newest stored run took; None without one."""


def planned(cell: Cell, history: Path | None) -> Planned:
    """Look up what a cell needs.

    Raises:
        ConfigError: its config cannot be used; names the cell.
    """
    loaded = _loaded(cell)
    launches = DECIDED
    if cell.verb in ("run", "exec") and loaded is not None:
        launches = str(len(plan_of(loaded.config)))
    return Planned(cell, launches, cell.ranks, _seconds(cell, history))


def _loaded(cell: Cell) -> LoadedConfig | None:
    """Load the config of a cell of the working folder. Another commit has its own."""
    if cell.config is None or cell.ref is not None:
        return None
    try:
        return load_config(Path(cell.config), cell.settings)
    except ConfigError as error:
        raise ConfigError(
            f"cell {cell.name}: {error.message}", error.hint, file=error.file, key=error.key
        ) from error


def _seconds(cell: Cell, history: Path | None) -> float | None:
    """Return the duration of the newest stored run of a cell, on any machine type."""
    if history is None or not is_history(history) or cell.verb not in ("run", "exec"):
        return None
    found = [
        entry
        for folder in (history / VERSION / slug(cell.name)).glob("*")
        if folder.is_dir()
        for entry in entries(folder)
    ]
    try:
        newest = max(found, key=lambda entry: entry.path.name, default=None)
        return None if newest is None else float(newest.record().duration_seconds)
    except RecordError:
        return None


def plan_lines(cells: list[Planned]) -> list[str]:
    """Return the plan as lines of text."""
    known = [one for one in cells if one.seconds is not None]
    minutes = sum((one.seconds or 0.0) * one.devices for one in known) / 60
    width = max(len(one.cell.name) for one in cells)
    lines = [
        f"{one.cell.name:<{width}}  {one.cell.verb:<9}  launches: {one.launches}"
        + ("" if one.seconds is None else f", took {duration(one.seconds)} last time")
        for one in cells
    ]
    total = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    if known:
        total += f", about {minutes:.1f} device minutes for {len(known)} of them"
    else:
        total += "; the history does not say how long this takes"
    return [*lines, total]
