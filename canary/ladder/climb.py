"""Climbs the ladder: at each level switches on what pays, guards it, and finds who breaks it."""

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
"""Keys that say how the rows of an update are cut."""


@dataclass(frozen=True)
class On:
    """A switch that is on, and with what settings."""

    switch: Switch
    settings: Settings


@dataclass
class Rung:
    """What happened since the last level that was shown."""

    switched: list[On] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)


class Climber:
    """Builds the levels of one config, from the baseline up."""

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
        self._on: list[On] = []
        """Below the level that is being built."""
        settings, who = self._settings([]), "the baseline level"
        self._guards = Guards(launch, config, say, settings, who)

    def climb(self, wanted: Sequence[Level]) -> list[LevelFound]:
        """The wanted levels, tried and guarded, not yet timed; the baseline is always the first.

        Raises:
            RunFailed: the baseline itself does not run.
        """
        settings = self._settings([])
        self._say("baseline: its first steps, which every level is guarded with")
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

    def _settings(self, switches: Sequence[On]) -> dict[str, Any]:
        """The baseline's settings with switches on, in their order."""
        settings = baseline_settings(self._config, self._switches)
        for one in switches:
            settings |= one.settings
        return settings

    def _switch_on(self, level: Level, rung: Rung) -> None:
        """First what always pays, then of what may pay the choices that do, each tried alone."""
        possible: list[tuple[Switch, Sequence[Settings]]] = []
        config = self._cut_as([*self._on, *rung.switched])
        for switch in self._all:
            if switch.level != level:
                continue
            reason = left_out(switch, config, self._machine)
            choices = accepted_choices(switch, config, self._machine, switch.off or {})
            if reason or not choices:
                rung.skipped.append(Skipped(switch.name, reason or "has no choice here"))
            elif switch.tried:
                possible.append((switch, choices))
            else:
                rung.switched.append(On(switch, choices[0]))
        if not possible:
            return
        below = self._settings([*self._on, *rung.switched])
        for switch, tried in try_out(self._launch, level, below, possible, self._say):
            rung.tried += tried
            rung.switched += [On(switch, one.settings) for one in tried if one.kept]

    def _cut_as(self, switches: Sequence[On]) -> CanaryConfig:
        """The config with the rows of an update cut as switches cut them: who cuts them again, as
        ranks do, must begin there."""
        settings = self._settings(switches)
        return with_settings(self._config, {key: settings[key] for key in CUT if key in settings})

    def _shown(self, level: Level, rung: Rung) -> LevelFound:
        """The level with all that came on, guarded."""
        whole = [*self._on, *rung.switched]
        seen = self._guarded(level, whole)
        if seen.broken is not None:
            seen = self._blamed(seen, level, rung)
        self._on = whole
        return LevelFound(
            level,
            self._settings(whole),
            tuple(one.switch.name for one in rung.switched),
            tuple(rung.skipped),
            tuple(rung.tried),
            seen,
        )

    def _guarded(self, level: Level, whole: Sequence[On]) -> Guarded:
        """With float32 put back where the level leaves it; where that holds, as it is."""
        strict = _in_float32(whole)
        exact = self._verdict(level, strict, "float32")
        if len(strict) == len(whole) or not exact.holds:
            return Guarded(exact)
        return Guarded(exact, self._verdict(f"{level} as it is", whole, "bfloat16"))

    def _verdict(self, label: str, switches: Sequence[On], rounding: Rounding) -> Verdict:
        return self._guards.verdict(label, self._settings(switches), rounding)

    def _blamed(self, seen: Guarded, level: Level, rung: Rung) -> Guarded:
        """Who breaks it: each switch that came on, alone on the level below."""
        broken = seen.broken
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
            return replace(seen, blamed=names)
        return replace(seen, note="no switch of this level breaks the guard alone")

    def _leave_out(self, level: LevelFound) -> list[Skipped]:
        """No level is built on a switch that is unsafe."""
        names = level.guarded.blamed if level.guarded else ()
        self._on = [one for one in self._on if one.switch.name not in names]
        return [Skipped(name, f"unsafe at {level.level}, left out from there on") for name in names]


def _in_float32(switches: Sequence[On]) -> list[On]:
    return [one for one in switches if one.switch.rounding == "float32"]
