"""List the cells of the base branch's matrix, for the jobs that train them.

It reads the matrix through GitHub's API, as the reporting job does, so both know the same cells. It
needs no checkout and no right but to read.
"""

from __future__ import annotations

from canary.errors import EXIT_OK, UsageError
from canary.gate.context import World
from canary.gate.failsafe import Target
from canary.gate.inputs import ReportSettings
from canary.gate.report_job import case_of, read_event
from canary.github.event import Kind
from canary.record import jsonio


def list_cells(settings: ReportSettings, world: World) -> int:
    """Set the output `cells` to a JSON list of names; it is empty if nothing is to be trained.

    Raises:
        UsageError: there is no input `matrix`, or the gate refuses this event.
        ConfigError: the matrix cannot be used.
        MachineError: GitHub cannot be read.
    """
    if not settings.matrix:
        raise UsageError("input matrix is empty", "write the path of a matrix file")
    intent = read_event(settings, world)
    world.job.line(intent.reason)
    found: list[str] = []
    if intent.kind not in (Kind.IGNORE, Kind.ANNOUNCE):
        found = [one.cell for one in case_of(Target(settings, world, intent)).asked]
    world.job.line(f"{len(found)} cells of {settings.matrix}")
    world.job.set_outputs({"cells": jsonio.dumps(found)})
    return EXIT_OK
