"""Try switches in short launches, to leave out those that do not pay on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from canary.ladder.busy import waited
from canary.ladder.labels import settings_words, value_words
from canary.ladder.launching import LadderRuns, LaunchResult
from canary.ladder.levels import Settings, Switch
from canary.ladder.results import Tried

PAYS = 1.02
"""A switch comes on if its trial is faster by this factor."""
PATIENCE, LEAST_PATIENCE_S = 4.0, 300.0
"""A trial ends after this many times the wall time of one without the switch, but not before this
many seconds: compiling takes minutes, and on a CPU hours."""


def try_out(
    launch: LadderRuns,
    label: str,
    below: Settings,
    choices: Sequence[tuple[Switch, Sequence[Settings]]],
    say: Callable[[str], None],
) -> list[tuple[Switch, list[Tried]]]:
    """Try each choice once on top of `below`, between two reference launches of `below` alone.

    Of each switch the fastest choice is kept if it pays. A gain smaller than the difference of the
    two reference launches is undecided, and not kept.
    """
    before = launch.trial(f"{label}, as the level below", below)
    usual_s = 0.0 if before.record is None else before.record.duration_seconds
    limit_s = max(LEAST_PATIENCE_S, PATIENCE * usual_s)
    trials = []
    for switch, several in choices:
        for settings, what in named(switch, several):
            say(f"{label}: trying {what}")
            trial = launch.trial(f"{label}, {what}", {**below, **settings}, limit_s)
            trials.append((switch, settings, trial))
    after = launch.trial(f"{label}, as the level below", below)
    references, apart = _interpolated(before, after, len(trials)), _apart(before, after)
    ratios = [_ratio(one, other) for (_, _, one), other in zip(trials, references, strict=True)]
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
            for (owner, settings, one), ratio in zip(trials, ratios, strict=True)
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
    """Return each choice with a unique name: `micro-batch 2 4`."""
    if len(choices) == 1:
        return [(choices[0], switch.name)]
    # Values are enough: every choice of a switch sets the same keys.
    return [
        (one, " ".join([switch.name, *(value_words(value) for value in one.values())]))
        for one in choices
    ]


def _interpolated(before: LaunchResult, after: LaunchResult, count: int) -> list[float | None]:
    """Interpolate the speed of the two reference launches at each trial between them. If one of
    them failed, the speed of the other counts."""
    first, last = before.speed or after.speed, after.speed or before.speed
    if first is None or last is None:
        return [None] * count
    return [first * (last / first) ** (place / (count + 1)) for place in range(1, count + 1)]


def _apart(before: LaunchResult, after: LaunchResult) -> float:
    """Return the relative difference of two equal launches; 0 if one has no speed."""
    if not before.speed or not after.speed:
        return 0.0
    return max(before.speed, after.speed) / min(before.speed, after.speed) - 1


def _decided(ratio: float | None, apart: float) -> bool:
    """Whether a ratio is larger than the machine's drift, if that drift could fake a gain."""
    if ratio is None or apart < PAYS - 1:
        return True
    return abs(math.log(ratio)) > math.log1p(apart)


def _ratio(trial: LaunchResult, reference: float | None) -> float | None:
    return trial.speed / reference if trial.speed and reference else None


def _best(tried: Sequence[Tried]) -> Tried | None:
    timed = [one for one in tried if one.ratio is not None]
    return max(timed, key=lambda one: one.ratio or 0.0, default=None)


def tried_words(tried: Tried) -> str:
    """Describe one trial."""
    what = f"{tried.switch} ({settings_words(tried.settings)})"
    if tried.ratio is None:
        return f"{what} did not run: {tried.problem or 'nothing was timed'}"
    if not tried.decided:
        drift = f"the two launches around the trials differ by {100 * tried.apart:.0f}%"
        return f"{what}: undecided, left out: {drift}"
    return f"{what}: {tried.ratio:.2f}x in a short trial, {'kept' if tried.kept else 'left out'}"
