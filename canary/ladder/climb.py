"""Climb the ladder: at each level switch on what pays, guard it, find the switch that breaks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from canary.config.schema import CanaryConfig
from canary.ladder.busy import waited
from canary.ladder.guard.runs import Guards
from canary.ladder.guard.verdict import Verdict
from canary.ladder.labels import settings_words, value_words
from canary.ladder.launching import LadderRuns, LaunchResult
from canary.ladder.levels import (
    LEVELS,
    Level,
    Rounding,
    Settings,
    Switch,
    baseline_settings,
    switches_for,
)
from canary.ladder.machine import Machine
from canary.ladder.results import Guarded, LevelFound, Skipped, Tried
from canary.ladder.suited import accepted_choices, left_out, suited, with_settings

CUT = ("batch_size", "gradient_accumulation_steps")
"""Keys that cut the rows of an update into micro-batches."""


@dataclass(frozen=True)
class ActiveSwitch:
    """A switch that is on, with its settings."""

    switch: Switch
    settings: Settings


@dataclass
class Rung:
    """Changes since the last level in the report."""

    switched: list[ActiveSwitch] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)


class Climber:
    """Builds the levels of one config, starting at the baseline."""

    def __init__(
        self,
        config: CanaryConfig,
        machine: Machine,
        launch: LadderRuns,
        say: Callable[[str], None],
        known: Sequence[Switch],
    ) -> None:
        self._config = config
        self._machine = machine
        self._launch = launch
        self._say = say
        self._all = switches_for(config, known)
        self._switches = suited(self._all, config, machine)
        self._on: list[ActiveSwitch] = []
        """Switches of the levels below the one that is being built."""
        settings, who = self._settings([]), "the baseline level"
        self._guards = Guards(launch, config, say, settings, who)

    def climb(self, wanted: Sequence[Level]) -> list[LevelFound]:
        """Return the wanted levels, tried and guarded but not timed; the baseline comes first.

        Raises:
            RunFailed: the baseline itself does not run.
        """
        settings = self._settings([])
        self._say("baseline: recording its first steps, the reference of every guard")
        self._guards.begin("baseline")
        found = [LevelFound("baseline", settings)]
        top = max(LEVELS.index(level) for level in wanted) if wanted else 0
        rung = Rung()
        for level in LEVELS[1 : top + 1]:
            self._switch_on(level, rung)
            if level in wanted:
                found.append(self._shown(level, rung))
                rung = Rung()
                rung.skipped = self._leave_out(found[-1])
        return found

    def _settings(self, switches: Sequence[ActiveSwitch]) -> dict[str, Any]:
        """Return the baseline's settings with these switches on, in order."""
        settings = baseline_settings(self._config, self._switches)
        for one in switches:
            settings |= one.settings
        return settings

    def _switch_on(self, level: Level, rung: Rung) -> None:
        """Switch on what always pays; try the other switches one by one and keep those that pay."""
        possible: list[tuple[Switch, Sequence[Settings]]] = []
        config = self._cut_as([*self._on, *rung.switched])
        for switch in self._all:
            if switch.level != level:
                continue
            reason = left_out(switch, config, self._machine)
            choices = accepted_choices(switch, config, self._machine, switch.off or {})
            if reason or not choices:
                rung.skipped.append(Skipped(switch.name, reason or "no setting fits this job"))
            elif switch.tried:
                possible.append((switch, choices))
            else:
                rung.switched.append(ActiveSwitch(switch, choices[0]))
        if not possible:
            return
        below = self._settings([*self._on, *rung.switched])
        for switch, tried in try_out(self._launch, level, below, possible, self._say):
            rung.tried += tried
            rung.switched += [ActiveSwitch(switch, one.settings) for one in tried if one.kept]

    def _cut_as(self, switches: Sequence[ActiveSwitch]) -> CanaryConfig:
        """Return the config with micro-batches as these switches cut them: a switch that cuts the
        rows again, such as ranks, must start from there."""
        settings = self._settings(switches)
        return with_settings(self._config, {key: settings[key] for key in CUT if key in settings})

    def _shown(self, level: Level, rung: Rung) -> LevelFound:
        """Guard the level with all its switches."""
        switches = [*self._on, *rung.switched]
        guarded = self._guarded(level, switches)
        if guarded.broken is not None:
            guarded = self._blamed(guarded, level, rung)
        self._on = switches
        return LevelFound(
            level,
            self._settings(switches),
            tuple(one.switch.name for one in rung.switched),
            tuple(rung.skipped),
            tuple(rung.tried),
            guarded,
        )

    def _guarded(self, level: Level, switches: Sequence[ActiveSwitch]) -> Guarded:
        """Guard a level in float32; if that holds and switches leave float32, also as it is."""
        strict = _in_float32(switches)
        exact = self._verdict(level, strict, "float32")
        if len(strict) == len(switches) or not exact.holds:
            return Guarded(exact)
        return Guarded(exact, self._verdict(f"{level} as it is", switches, "bfloat16"))

    def _verdict(self, label: str, switches: Sequence[ActiveSwitch], rounding: Rounding) -> Verdict:
        return self._guards.verdict(label, self._settings(switches), rounding)

    def _blamed(self, guarded: Guarded, level: Level, rung: Rung) -> Guarded:
        """Find the switches that break the guard: try each one alone on the level below."""
        broken = guarded.broken
        assert broken is not None
        if broken.rounding == "float32":
            below, suspects = _in_float32(self._on), _in_float32(rung.switched)
        else:
            below = list(self._on)
            suspects = [one for one in rung.switched if one.switch.rounding != "float32"]
        if len(suspects) == 1:
            names: tuple[str, ...] = (suspects[0].switch.name,)
        else:
            names = tuple(
                one.switch.name
                for one in suspects
                if not self._verdict(
                    f"{level}, only {one.switch.name}", [*below, one], broken.rounding
                ).holds
            )
        if names:
            return replace(guarded, blamed=names)
        return replace(guarded, note="no switch of this level breaks the guard alone")

    def _leave_out(self, level: LevelFound) -> list[Skipped]:
        """Switch unsafe switches off for the levels above."""
        names = level.guarded.blamed if level.guarded else ()
        self._on = [one for one in self._on if one.switch.name not in names]
        return [Skipped(name, f"unsafe at {level.level}, off from here on") for name in names]


def _in_float32(switches: Sequence[ActiveSwitch]) -> list[ActiveSwitch]:
    return [one for one in switches if one.switch.rounding == "float32"]


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
