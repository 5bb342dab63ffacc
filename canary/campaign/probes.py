"""Run the probes of two sides at the same time: probes are not timed, so they may compete."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from canary.campaign.pairs import Role, RunSide
from canary.campaign.side import Side, stop_child
from canary.config.load import load_config
from canary.record.types import RunRecord


@contextlib.contextmanager
def at_once(sides: Mapping[str, Side], settings: Sequence[str]) -> Iterator[RunSide]:
    """Start a run of each side; yield a function that waits for a run and returns its record.

    Each further call for a side starts a new run. Runs that are still active at the end are
    stopped. Commands that share a folder take turns, because they would write into each other's
    files. Canaries that share a GPU take turns too, by its lock.
    """
    running: dict[str, subprocess.Popen[str]] = {}

    def launch(role: Role, *, probe: bool) -> RunRecord:
        child = running.pop(role, None)
        child = sides[role].start(settings) if child is None else child
        return sides[role].finish(child)

    try:
        if not _shares_files(sides):
            for role, side in sides.items():
                running[role] = side.start(settings)
        yield launch
    finally:
        for child in running.values():
            stop_child(child)


def _shares_files(sides: Mapping[str, Side]) -> bool:
    """Whether a user's command runs in a folder that both sides share."""
    if len({side.folder for side in sides.values()}) == len(sides):
        return False
    loaded = [load_config(side.config, side.settings) for side in sides.values()]
    return any(one.config.training_type == "exec" for one in loaded)
