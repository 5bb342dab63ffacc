"""Whether other work on the machine was in the way of what was timed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from canary.ladder.launching import Ran
from canary.ladder.results import LevelFound
from canary.ladder.rounds import Arm

BUSY = 0.2
"""A launch that waited for a core this share of the time had a machine with other work."""


def waited(ran: Ran) -> float | None:
    """Share of a launch's time in which it was ready and had no core; None: not measured."""
    return None if ran.record is None else ran.record.host.run_delay


def busy_notes(arms: Sequence[Arm], levels: Sequence[LevelFound] = ()) -> list[str]:
    """What a user must know of a machine that did other work as well; empty where it did none."""
    timed = [
        (share, f"a timed launch of {arm.label}")
        for arm in arms
        for ran in arm.ran
        if (share := waited(ran)) is not None
    ]
    trials = [
        (one.waited, f"a trial for {level.level}")
        for level in levels
        for one in level.tried
        if one.waited is not None
    ]
    notes = [
        f"the machine was busy: {what} waited for a core {100 * share:.0f}% of the time; "
        "intervals are wider than they look"
        for share, what in (max(group) for group in (timed, trials) if group)
        if share > BUSY
    ]
    for level in levels:
        open_ = [one for one in level.tried if not one.decided]
        if open_:
            apart = max(one.apart for one in open_)
            notes.append(
                f"the machine was not steady: the two launches around the trials for {level.level} "
                f"differ by {100 * apart:.0f}%; what lies within is not decided"
            )
    return notes
