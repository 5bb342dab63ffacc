"""Probes of two sides at once: nothing of them is timed, so they may share the machine."""

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
    """Starts a run of each side; the launch waits for the one that is asked for, and for a new one
    where it was taken already. What still runs at the end is stopped.

    Commands of one folder write into each other's files: they take turns. So do canaries of one
    GPU, by its lock.
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
    """Whether a command of the user's own runs in a folder that is another side's too."""
    if len({side.folder for side in sides.values()}) == len(sides):
        return False
    loaded = [load_config(side.config, side.settings) for side in sides.values()]
    return any(one.config.training_type == "exec" for one in loaded)
