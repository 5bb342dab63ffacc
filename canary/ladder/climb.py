"""Climb the ladder: at each level switch on what pays, guard it, find the switch that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from canary.config.schema import CanaryConfig
from canary.ladder.guard.runs import Guards
from canary.ladder.guard.verdict import Verdict
from canary.ladder.launching import LadderRuns
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
from canary.ladder.trials import try_out

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
