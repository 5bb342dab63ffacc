"""Climb the ladder: at each level switch on what pays, guard it, find the switch that breaks it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from canary.ladder.guard import Guarded, Guards, in_float32
from canary.ladder.results import LevelFound, Skipped, Tried
from canary.ladder.site import LaunchResult, Site
from canary.ladder.switches import (
    LEVELS,
    Choice,
    Level,
    Settings,
    Switch,
    named,
    settings_of,
    settings_words,
    with_settings,
)

CUT = ("batch_size", "gradient_accumulation_steps")
"""Keys that cut the rows of an update into micro-batches."""
PAYS = 1.02
"""A switch comes on if its trial is faster by this factor."""
PATIENCE, LEAST_PATIENCE_S = 4.0, 300.0
"""A trial ends after this many times the wall time of one without the switch, but not before this
many seconds: compiling takes minutes, and on a CPU hours."""


@dataclass
class Rung:
    """Changes since the last level in the report."""

    switched: list[Choice] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)


class Climber:
    """Builds the levels of one config, starting at the baseline."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._baseline = site.job.baseline
        self._guards = Guards(site, self._baseline)
        self._on: list[Choice] = []
        """Choices of the levels below the one that is being built."""

    def climb(self, wanted: Sequence[Level]) -> list[LevelFound]:
        """Return the wanted levels, tried and guarded but not timed; the baseline comes first."""
        self._site.say("baseline: recording its first steps, the reference of every guard")
        self._guards.begin("baseline")
        found = [LevelFound("baseline", self._baseline)]
        rung = Rung()
        for level in LEVELS[1 : 1 + max(LEVELS.index(one) for one in wanted)]:
            self._switch_on(level, rung)
            if level in wanted:
                found.append(self._shown(level, rung))
                # Unsafe switches are off at the levels above.
                names = guarded.blamed if (guarded := found[-1].guarded) else ()
                self._on = [one for one in self._on if one.switch.name not in names]
                why = f"unsafe at {level}, off from here on"
                rung = Rung(skipped=[Skipped(name, why) for name in names])
        return found

    def _settings(self, *choices: Choice) -> dict[str, Any]:
        """Return the baseline's settings with these choices on, in order."""
        return self._baseline | settings_of(choices)

    def _switch_on(self, level: Level, rung: Rung) -> None:
        """Switch on what always pays; try the other switches one by one and keep those that pay."""
        possible: list[tuple[Switch, Sequence[Settings]]] = []
        # A switch that cuts the rows again, such as ranks, starts from how they are cut now.
        now = self._settings(*self._on, *rung.switched)
        cut = {key: now[key] for key in CUT if key in now}
        job = replace(self._site.job, config=with_settings(self._site.job.config, cut))
        for switch in job.switches:
            if switch.level != level:
                continue
            reason = job.left_out(switch)
            choices = [] if reason else job.choices(switch, switch.off)
            if not choices:
                rung.skipped.append(Skipped(switch.name, reason or "no setting fits this job"))
            elif switch.tried:
                possible.append((switch, choices))
            else:
                rung.switched.append(Choice(switch, choices[0]))
        if possible:
            below = self._settings(*self._on, *rung.switched)
            for switch, tried in try_out(self._site, level, below, possible):
                rung.tried += tried
                rung.switched += [Choice(switch, one.settings) for one in tried if one.kept]

    def _shown(self, level: Level, rung: Rung) -> LevelFound:
        """Guard the level with all its switches."""
        below, self._on = self._on, [*self._on, *rung.switched]
        guarded = self._guards.of(level, self._on)
        if guarded.broken is not None:
            guarded = self._blamed(guarded, level, below, rung.switched)
        return LevelFound(
            level,
            self._settings(*self._on),
            tuple(one.switch.name for one in rung.switched),
            tuple(rung.skipped),
            tuple(rung.tried),
            guarded,
        )

    def _blamed(
        self, guarded: Guarded, level: Level, below: list[Choice], suspects: list[Choice]
    ) -> Guarded:
        """Find the switches that break the guard: try each one alone on the level below."""
        assert guarded.broken is not None
        rounding = guarded.broken.rounding
        if rounding == "float32":
            below = in_float32(below)
        suspects = [
            one for one in suspects if (one.switch.rounding == "float32") == (rounding == "float32")
        ]
        names = [
            one.switch.name
            for one in suspects
            if len(suspects) == 1
            or not self._guards.verdict(
                f"{level}, only {one.switch.name}", self._settings(*below, one), rounding
            ).holds
        ]
        return replace(guarded, blamed=tuple(names))


def try_out(
    site: Site, label: str, below: Settings, choices: Sequence[tuple[Switch, Sequence[Settings]]]
) -> list[tuple[Switch, list[Tried]]]:
    """Try each choice once on top of `below`, between two reference launches of `below` alone.

    Of each switch the fastest choice is kept if it pays. A gain smaller than the difference of the
    two reference launches is undecided, and not kept.
    """
    before = site.trial(f"{label}, as the level below", below)
    usual_s = 0.0 if before.record is None else before.record.duration_seconds
    limit_s = max(LEAST_PATIENCE_S, PATIENCE * usual_s)
    trials: list[tuple[Choice, LaunchResult]] = []
    for choice, what in (one for switch, several in choices for one in named(switch, several)):
        site.say(f"{label}: trying {what}")
        settings = {**below, **choice.settings}
        trials.append((choice, site.trial(f"{label}, {what}", settings, limit_s)))
    after = site.trial(f"{label}, as the level below", below)
    tried = [
        (choice.switch, _tried(choice, trial, before, after, place / (len(trials) + 1)))
        for place, (choice, trial) in enumerate(trials, 1)
    ]
    found = []
    for switch, _ in choices:
        own = [one for owner, one in tried if owner is switch]
        paying = [one for one in own if one.decided and (one.ratio or 0.0) >= PAYS]
        best = max(paying, key=lambda one: one.ratio or 0.0, default=None)
        own = [replace(one, kept=one is best) for one in own]
        for one in own:
            site.say(f"{label}: {tried_words(one)}")
        found.append((switch, own))
    return found


def _tried(
    choice: Choice, trial: LaunchResult, before: LaunchResult, after: LaunchResult, when: float
) -> Tried:
    """Compare a trial with the two reference launches around all trials. `when`: from 0, the first
    of these, to 1. If one of them failed, the speed of the other counts."""
    first, last = before.speed or after.speed, after.speed or before.speed
    apart = max(first, last) / min(first, last) - 1 if first and last else 0.0
    ratio = None
    if trial.speed and first and last:
        ratio = trial.speed / (first * (last / first) ** when)
    # The machine's drift must not fake a gain.
    decided = ratio is None or apart < PAYS - 1 or abs(math.log(ratio)) > math.log1p(apart)
    name, problem = choice.switch.name, trial.problem
    return Tried(name, choice.settings, ratio, False, problem, apart, decided)


def tried_words(tried: Tried) -> str:
    """Describe one trial."""
    what = f"{tried.switch} ({settings_words(tried.settings)})"
    if tried.ratio is None:
        return f"{what} did not run: {tried.problem or 'nothing was timed'}"
    if not tried.decided:
        drift = f"the two launches around the trials differ by {100 * tried.apart:.0f}%"
        return f"{what}: undecided, left out: {drift}"
    return f"{what}: {tried.ratio:.2f}x in a short trial, {'kept' if tried.kept else 'left out'}"
