"""Detect other work on the machine that disturbed the timing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from canary.ladder.launching import LaunchResult
from canary.ladder.results import LevelFound
from canary.ladder.rounds import Arm

BUSY = 0.2
"""A launch that waited for a core for this share of its time shared the machine."""


def waited(launch: LaunchResult) -> float | None:
    """Share of a launch's time that it waited for a core; None: not measured."""
    return None if launch.record is None else launch.record.host.run_delay


def busy_notes(arms: Sequence[Arm], levels: Sequence[LevelFound] = ()) -> list[str]:
    """Return notes about other work on the machine; empty if there was none."""
    timed = [
        (share, f"a timed launch of {arm.label}")
        for arm in arms
        for launch in arm.ran
        if (share := waited(launch)) is not None
    ]
    trials = [
        (one.waited, f"a trial for {level.level}")
        for level in levels
        for one in level.tried
        if one.waited is not None
    ]
    notes = [
        f"the machine was busy: {what} waited for a core {100 * share:.0f}% of the time; "
        "the real uncertainty is larger than the intervals show"
        for share, what in (max(group) for group in (timed, trials) if group)
        if share > BUSY
    ]
    for level in levels:
        undecided = [one for one in level.tried if not one.decided]
        if undecided:
            apart = max(one.apart for one in undecided)
            notes.append(
                f"the machine was not steady: the two launches around the trials for {level.level} "
                f"differ by {100 * apart:.0f}%; smaller gains are undecided"
            )
    return notes
