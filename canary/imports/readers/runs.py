"""The runs of a store that holds several."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from canary.errors import InputError
from canary.imports.entries import Telling, shortened

SHOWN = 5
CLOCKS_DIFFER_S = 60.0


@dataclass(frozen=True)
class StoredRun:
    """A run; `started` in seconds since the epoch."""

    id: str
    name: str
    started: float


def picked(
    runs: Sequence[StoredRun], asked: str | None, since: float, file: str, telling: Telling
) -> StoredRun:
    """Return the run that was asked for by name or id, else the newest.

    Args:
        runs: the runs of the store.
        asked: what the user names.
        since: runs that started before are not read; seconds since the epoch.
        file: the store, for messages.
        telling: gets the choice.

    Raises:
        InputError: there is no such run, or several have the name.
    """
    if not runs:
        raise InputError(f"{file} holds no run", "name the store that the training wrote")
    # By hand all count. A run that begins after now was not started by a launch that ended.
    latest = time.time() + CLOCKS_DIFFER_S if since > 0 else math.inf
    fresh = [run for run in runs if since <= run.started <= latest]
    if not fresh:
        raise InputError(f"{file} holds no run that this launch started")
    if asked is not None:
        named = [run for run in fresh if asked in (run.id, run.name)]
        names = ", ".join(shortened(run.name) for run in runs[-SHOWN:])
        if not named:
            raise InputError(f"{file} holds no run {asked!r}", f"its newest are {names}")
        if len(named) > 1:
            ids = ", ".join(shortened(run.id) for run in named[:SHOWN])
            raise InputError(
                f"{file} holds {len(named)} runs named {asked!r}", f"name one by id: {ids}"
            )
        return named[0]
    newest = max(fresh, key=lambda run: (run.started, run.id))
    if len(runs) > 1:
        what = f"of {len(runs)} runs the newest was read: {shortened(newest.name)}; --run names one"
        telling.tell(what, file)
    return newest
