"""The entry points: a drawer, or stored runs, in; levels and change points of all metrics out. They
read files but start no process and need no network.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from canary.baseline.history import NOISE_FILE, drawers, entries
from canary.compare.timing.lane import FAMILY_BUDGET, NO_MODEL_SHARE
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.config.load import gates_in
from canary.config.metric_gates import MetricGate
from canary.errors import ConfigError, InputError, MachineError
from canary.record.types import RunRecord
from canary.trends.model import HistoryTrends, Series
from canary.trends.runs import Number, Run, changes_of, stored_runs

MAIN = "step_time_median"
MAIN_SHARE = 0.5
"""The share of the error budget that `MAIN` gets; the other metrics share the rest."""
MOST_SERIES = 100
"""Metrics of a drawer that are followed."""
NOISE_OF = {"tokens_per_sec": "step_time_median"}
"""Metrics whose noise a noise model has under another name."""


def require_history() -> None:
    """Raise MachineError if change points cannot be found."""
    if importlib.util.find_spec("ruptures") is None:
        raise MachineError(
            "the changes of a history need the extra `history`",
            "pip install 'rlhf-canary[history]'",
        )


def trends_in(root: Path, shown: str = "", canary: str | None = None) -> list[HistoryTrends]:
    """Return the trends of all drawers of a history, the newest first; `shown` names the history.

    Raises:
        InputError: the folder holds no history, or none of this canary.
        MachineError: the extra `history` is missing.
        RecordError: an entry cannot be read.
    """
    found = [(stored[-1].start, folder) for folder in drawers(root) if (stored := entries(folder))]
    kept = [one for one in found if canary in (None, one[1].parent.name)]
    if canary is not None and not kept:
        known = ", ".join(sorted({folder.parent.name for _, folder in found}))
        raise InputError(f"no canary {canary!r} in {shown or root}", f"it has: {known or 'none'}")
    return [trends_of(folder) for _, folder in sorted(kept, reverse=True)]


def trends_of(drawer_folder: Path) -> HistoryTrends:
    """Return the trends of one drawer, in the order in which its runs started.

    Raises:
        MachineError: the extra `history` is missing.
        RecordError: an entry cannot be read.
    """
    notes = []
    noise = None
    if (drawer_folder / NOISE_FILE).exists():
        try:
            noise = load_noise(drawer_folder / NOISE_FILE)
        except InputError as error:
            notes.append(f"the noise is estimated from the runs: {error.message}")
    canary, machine = drawer_folder.parent.name, drawer_folder.name
    return trends_of_stored(stored_runs(drawer_folder), noise, canary, machine, notes)


def trends_of_stored(
    newest_first: Iterable[Run],
    noise: NoiseModel | None,
    canary: str,
    machine: str,
    notes: list[str],
) -> HistoryTrends:
    """Return the trends of stored runs of one canary on one machine.

    Raises:
        MachineError: the extra `history` is missing.
    """
    require_history()
    from canary.trends.series import series_of  # It loads numpy, which a core install lacks.

    runs: list[Run] = []
    gates: tuple[MetricGate, ...] = ()
    for run in newest_first:
        if not runs:
            gates = _gates(run.record, notes)
        runs.append(run.kept(gates))
    runs.reverse()
    followed = _followed(runs, notes)
    machines = changes_of(runs)
    found = []
    for name, number in followed.items():
        model = noise.run_spread(NOISE_OF.get(name, name)) if noise is not None else None
        budget = budget_of(name, followed, model is not None)
        found.append(series_of(name, number, runs, budget, model, machines))
    return HistoryTrends(
        canary,
        machine,
        tuple(sorted(found, key=_worst_first)),
        tuple(notes),
        tuple(machines.items()),
        next((path for run in reversed(runs) if (path := run.record.config_file)), ""),
    )


def _worst_first(series: Series) -> float:
    """Return the order of a series: the largest confirmed change for the worse first."""
    worse = (one for one in series.changes if one.worse and one.standing == "confirmed")
    return -max((abs(change.percent) for change in worse), default=0.0)


def _gates(newest: RunRecord, notes: list[str]) -> tuple[MetricGate, ...]:
    """Return the gates of the newest run's config."""
    try:
        return gates_in(newest.config.get("metrics"), f"run {newest.run_id}")
    except ConfigError as error:
        notes.append(f"the gates of the newest run cannot be read: {error.message}")
        return ()


def _followed(runs: Sequence[Run], notes: list[str]) -> dict[str, Number]:
    """Return the newest number of each metric, in the order of the newest run."""
    found: dict[str, Number] = {}
    for run in reversed(runs):
        for name, number in run.numbers.items():
            found.setdefault(name, number)
    kept = dict(list(found.items())[:MOST_SERIES])
    if len(found) > len(kept):
        notes.append(f"{len(found) - len(kept)} more metrics are not followed")
    return kept


def budget_of(metric: str, followed: Collection[str], modelled: bool) -> float:
    """Return the error budget of one metric: its part of `FAMILY_BUDGET`, which bounds the false
    alarms each time a drawer is judged. A history is judged again and again: the false alarms
    together are measured, not bounded (docs/figures.md).

    `followed`: all metrics of the drawer. `modelled`: whether its noise was calibrated.
    """
    whole = FAMILY_BUDGET * (1.0 if modelled else NO_MODEL_SHARE)
    if MAIN not in followed:
        return whole / len(followed)
    others = len(followed) - 1
    if metric == MAIN:
        return whole * (MAIN_SHARE if others else 1.0)
    return whole * (1 - MAIN_SHARE) / others
