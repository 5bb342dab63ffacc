"""Tries switches in short launches: what does not pay on this machine is left out, and said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from canary.ladder.busy import waited
from canary.ladder.labels import settings_words, value_words
from canary.ladder.launching import LadderRuns, Ran
from canary.ladder.levels import Settings, Switch
from canary.ladder.results import Tried

PAYS = 1.02
"""A switch comes on where its trial was faster by this factor."""
PATIENCE, LEAST_PATIENCE_S = 4.0, 300.0
"""A trial is given up after so many times the wall time of one without the switch, but not before
so many seconds: compiling takes minutes, and on a CPU hours."""
_OPEN = "not decided, left out: the two launches around the trials differ by"


def try_out(
    launch: LadderRuns,
    label: str,
    below: Settings,
    choices: Sequence[tuple[Switch, Sequence[Settings]]],
    say: Callable[[str], None],
) -> list[tuple[Switch, list[Tried]]]:
    """Each choice once on top of `below`, between two launches of that alone; of each switch the
    fastest choice is kept, where it pays. What differs from these two by less than they do from
    one another is not decided, and not kept."""
    before = launch.trial(f"{label}, as the level below", below)
    usual = 0.0 if before.record is None else before.record.duration_seconds
    limit = max(LEAST_PATIENCE_S, PATIENCE * usual)
    ran = []
    for switch, several in choices:
        for settings, what in named(switch, several):
            say(f"{label}: trying {what}")
            trial = launch.trial(f"{label}, {what}", {**below, **settings}, limit)
            ran.append((switch, settings, trial))
    after = launch.trial(f"{label}, as the level below", below)
    references, apart = _line(before, after, len(ran)), _apart(before, after)
    ratios = [_ratio(one, other) for (_, _, one), other in zip(ran, references, strict=True)]
    found = []
    for switch, _ in choices:
        tried = [
            Tried(
                switch.name,
                settings,
                ratio,
                False,
                one.problem,
                apart,
                _decided(ratio, apart),
                waited(one),
            )
            for (owner, settings, one), ratio in zip(ran, ratios, strict=True)
            if owner is switch
        ]
        best = _best([one for one in tried if one.decided])
        if best is not None and best.ratio is not None and best.ratio >= PAYS:
            tried = [replace(one, kept=one is best) for one in tried]
        for one in tried:
            say(f"{label}: {tried_words(one)}")
        found.append((switch, tried))
    return found


def named(switch: Switch, choices: Sequence[Settings]) -> list[tuple[Settings, str]]:
    """Each choice with a name that tells it from the switch's others: `micro-batch 2 4`."""
    if len(choices) == 1:
        return [(choices[0], switch.name)]
    # The values alone: a switch sets the same keys in each of its choices.
    return [
        (one, " ".join([switch.name, *(value_words(value) for value in one.values())]))
        for one in choices
    ]


def _line(before: Ran, after: Ran, count: int) -> list[float | None]:
    """What the speed without a switch would have been at each trial between two such launches: the
    machine is taken to have changed evenly. Of one of them where the other failed."""
    ends = [one.speed or other.speed for one, other in ((before, after), (after, before))]
    first, last = ends
    if first is None or last is None:
        return [None] * count
    return [first * (last / first) ** (place / (count + 1)) for place in range(1, count + 1)]


def _apart(before: Ran, after: Ran) -> float:
    """By what share two launches of the same differ; 0 where one has no speed."""
    if not before.speed or not after.speed:
        return 0.0
    return max(before.speed, after.speed) / min(before.speed, after.speed) - 1


def _decided(ratio: float | None, apart: float) -> bool:
    """Whether a trial says more than the machine's own unrest, where that could fake a gain."""
    if ratio is None or apart < PAYS - 1:
        return True
    return abs(math.log(ratio)) > math.log1p(apart)


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
    if not tried.decided:
        return f"{what}: {_OPEN} {100 * tried.apart:.0f}%"
    return f"{what}: {tried.ratio:.2f}x in a short trial, {'kept' if tried.kept else 'left out'}"
