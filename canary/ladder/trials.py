"""Tries switches in short launches: what does not pay on this machine is left out, and said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from canary.ladder.launching import Launch, Ran
from canary.ladder.levels import Settings, Switch
from canary.ladder.results import Tried
from canary.ladder.words import settings_words

PAYS = 1.02
"""A switch comes on where its trial was faster by this factor."""


def try_out(
    launch: Launch,
    label: str,
    below: Settings,
    choices: Sequence[tuple[Switch, Sequence[Settings]]],
    say: Callable[[str], None],
) -> list[tuple[Switch, list[Tried]]]:
    """Each choice once on top of `below`, between two launches of that alone; of each switch the
    fastest choice is kept, where it pays."""
    before = launch.trial(label, below)
    ran = [
        (switch, settings, launch.trial(label, {**below, **settings}))
        for switch, several in choices
        for settings in several
    ]
    reference = _middle(before, launch.trial(label, below))
    found = []
    for switch, _ in choices:
        tried = [
            Tried(switch.name, settings, _ratio(one, reference), False, one.problem)
            for owner, settings, one in ran
            if owner is switch
        ]
        best = _best(tried)
        if best is not None and best.ratio is not None and best.ratio >= PAYS:
            tried = [replace(one, kept=one is best) for one in tried]
        for one in tried:
            say(f"{label}: {tried_words(one)}")
        found.append((switch, tried))
    return found


def _middle(*ran: Ran) -> float | None:
    """Geometric mean of the speeds."""
    speeds = [math.log(one.speed) for one in ran if one.speed]
    return math.exp(fmean(speeds)) if speeds else None


def _ratio(ran: Ran, reference: float | None) -> float | None:
    return ran.speed / reference if ran.speed and reference else None


def _best(tried: Sequence[Tried]) -> Tried | None:
    ran = [one for one in tried if one.ratio is not None]
    return max(ran, key=lambda one: one.ratio or 0.0, default=None)


def tried_words(tried: Tried) -> str:
    """One trial in words."""
    what = f"{tried.switch} ({settings_words(tried.settings)})"
    if tried.ratio is None:
        return f"{what} did not run: {tried.problem or 'nothing was timed'}"
    return f"{what}: {tried.ratio:.2f}x in a short trial, {'kept' if tried.kept else 'left out'}"


def why_left_out(tried: Sequence[Tried]) -> str:
    """Of a switch none of whose choices pays."""
    best = _best(tried)
    if best is None:
        problem = tried[0].problem if tried else ""
        return f"did not run here: {problem or 'nothing was timed'}"
    choice = f" ({settings_words(best.settings)})" if len(tried) > 1 else ""
    return f"does not pay here: {best.ratio:.2f}x in a short trial{choice}"
