"""What a ladder found: types, handed from the climbing to the rendering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.ladder.guard.verdict import Verdict
from canary.ladder.launching import FinishedRun
from canary.ladder.levels import Level, Settings
from canary.ladder.machine import Machine
from canary.ladder.measure import Figures, SpeedUp


@dataclass(frozen=True)
class Skipped:
    """A switch that is not on at its level, and why."""

    switch: str
    reason: str


@dataclass(frozen=True)
class Tried:
    """A choice of a switch, measured by short launches on top of the level below."""

    switch: str
    settings: Settings
    ratio: float | None
    """Samples a second with it over those without; None where it did not run."""
    kept: bool
    problem: str = ""
    apart: float = 0.0
    """By what share the two launches around the trials differ: what the machine did meanwhile."""
    decided: bool = True
    """Whether its ratio lies outside of that; where it does not, it is not kept."""
    waited: float | None = None
    """Share of the trial in which it was ready and had no core; None: not measured."""


@dataclass(frozen=True)
class Guarded:
    """What the guards of one level saw."""

    exact: Verdict | None
    """With what leaves float32 put back: within float32's rounding. None where it did not run."""
    wide: Verdict | None = None
    """As the level is, where it leaves float32."""
    blamed: tuple[str, ...] = ()
    """Switches of the level that break the guard alone."""
    note: str = ""

    @property
    def broken(self) -> Verdict | None:
        """The verdict of a guard that ran and does not hold, the exact one first."""
        return next((one for one in self._told if one.broken), None)

    @property
    def missing(self) -> Verdict | None:
        """The verdict of a guard that did not run: nothing is known of what is learned."""
        return next((one for one in self._told if not one.ran), None)

    @property
    def _told(self) -> list[Verdict]:
        return [one for one in (self.exact, self.wide) if one is not None]

    @property
    def holds(self) -> bool:
        """Whether the level moved no signal of the baseline's beyond what arithmetic may."""
        return self.exact is not None and all(one.holds for one in self._told)


@dataclass(frozen=True)
class LevelFound:
    """One level, measured."""

    level: Level
    settings: Settings
    """All of them, over the user's config."""
    switched: tuple[str, ...] = ()
    """Names of the switches that came on at this level, or at a level below that is not shown."""
    skipped: tuple[Skipped, ...] = ()
    """What could not be tried; what was, and was left out, stands in `tried`."""
    tried: tuple[Tried, ...] = ()
    guarded: Guarded | None = None
    """None for the baseline, which the others are held against."""
    speeds: tuple[float, ...] = ()
    """Samples a second, a launch a round."""
    figures: Figures | None = None
    cumulative: SpeedUp | None = None
    step_up: SpeedUp | None = None
    """Over the level that `step_over` names."""
    step_over: str = ""
    """The last safe level below that has a ratio, or the baseline."""
    bottleneck: str = ""
    """What held this level back over its rounds, before the next step up."""
    problem: str = ""
    """Why there is no ratio: it did not run, or did other work."""

    @property
    def safe(self) -> bool:
        """Whether nothing was seen that it learns otherwise; the baseline is."""
        return self.guarded is None or self.guarded.holds

    @property
    def unsafe(self) -> bool:
        """Whether it learns something else than the baseline."""
        return self.guarded is not None and self.guarded.broken is not None

    @property
    def unguarded(self) -> str:
        """Why nothing is known of what it learns; empty where its guards ran."""
        missing = None if self.guarded is None else self.guarded.missing
        return "" if missing is None else missing.problem


@dataclass(frozen=True)
class TrlFound:
    """The same job on trl's own defaults."""

    figures: Figures | None = None
    over_baseline: SpeedUp | None = None
    share: float | None = None
    """Of the top level's gain, what a user of trl has already, in logarithms; 0 where trl's
    defaults are slower than the baseline, None where there is no gain to share, or `undecided`."""
    undecided: str = ""
    """Why the ratios do not say what share that is."""
    problem: str = ""
    skipped: bool = False
    """Whether `problem` was known before the start, and no process was launched."""


def top_of(levels: Sequence[LevelFound]) -> LevelFound | None:
    """The highest safe level with a ratio over the baseline; of those with its settings the lowest,
    which switched the last of them on. None where that is the baseline."""
    measured = [one for one in levels[1:] if one.cumulative is not None and one.safe]
    if not measured or measured[-1].settings == levels[0].settings:
        return None
    return next(one for one in measured if one.settings == measured[-1].settings)


@dataclass(frozen=True)
class Ladder:
    """One ladder."""

    name: str
    headline: str
    """Trainer, model and data in a line."""
    training_type: str
    machine: Machine
    created: str
    rounds: int
    levels: tuple[LevelFound, ...]
    trl: TrlFound
    folder: Path
    notes: tuple[str, ...] = ()
    launches: tuple[FinishedRun, ...] = ()
    """All of them, in their order."""

    @property
    def top(self) -> LevelFound | None:
        """The level that the headline names, see `top_of`."""
        return top_of(self.levels)

    @property
    def passed(self) -> bool:
        """Whether every level was measured, did equal work, and its guard holds."""
        return not any(one.unsafe or one.unguarded or one.problem for one in self.levels)


@dataclass(frozen=True)
class Advised:
    """One choice of a switch, alone on top of the user's own config."""

    switch: str
    settings: Settings
    gain: SpeedUp | None = None
    guard: Verdict | None = None
    problem: str = ""

    @property
    def worth_it(self) -> bool:
        """Faster for sure, and nothing else is learned."""
        return self.gain is not None and self.gain.sure and self._safe

    @property
    def _safe(self) -> bool:
        return not self.problem and self.guard is not None and self.guard.holds


@dataclass(frozen=True)
class Advice:
    """What to put into the user's own config, in order of gain."""

    name: str
    headline: str
    training_type: str
    machine: Machine
    created: str
    rounds: int
    candidates: tuple[Advised, ...]
    """By gain, the largest first; those without one last."""
    skipped: tuple[Skipped, ...]
    settings: Settings = field(default_factory=dict)
    """Of those that are worth it, the best choice of each switch."""
    together: Advised | None = None
    """All of these at once."""
    base: Figures | None = None
    folder: Path = Path()
    notes: tuple[str, ...] = ()
    launches: tuple[FinishedRun, ...] = ()
    """All of them, in their order."""

    @property
    def passed(self) -> bool:
        """Whether what is advised holds together."""
        return self.together is None or self.together.guard is None or self.together.guard.holds
