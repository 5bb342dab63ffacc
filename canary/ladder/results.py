"""The results of a ladder, as types that the reports read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.ladder.guard.verdict import Verdict
from canary.ladder.launching import FinishedRun
from canary.ladder.levels import Level, Settings
from canary.ladder.machine import Machine
from canary.ladder.measure import Figures, SpeedUp

RESULTS = ("ladder.json", "advice.json")
"""Files of a ladder's folder, and of an advice's, that hold the result."""


@dataclass(frozen=True)
class Skipped:
    """A switch that is not on at its level, and why."""

    switch: str
    reason: str


@dataclass(frozen=True)
class Tried:
    """A choice of a switch, timed in a short launch on top of the level below."""

    switch: str
    settings: Settings
    ratio: float | None
    """Samples per second with it over those without it; None if it did not run."""
    kept: bool
    problem: str = ""
    apart: float = 0.0
    """Relative difference of the two launches around the trials: the drift of the machine."""
    decided: bool = True
    """Whether its gain or loss is larger than that drift; if not, it is not kept."""
    waited: float | None = None
    """Share of the trial's time that it waited for a core; None: not measured."""


@dataclass(frozen=True)
class Guarded:
    """The verdicts of one level's guards."""

    exact: Verdict | None
    """The level in float32, within float32's rounding; None if it did not run."""
    wide: Verdict | None = None
    """The level as it is, if it leaves float32."""
    blamed: tuple[str, ...] = ()
    """Switches of the level that break the guard when they are on alone."""
    note: str = ""

    @property
    def broken(self) -> Verdict | None:
        """The verdict of a guard that ran and does not hold, the exact one first."""
        return next((one for one in self._verdicts if one.broken), None)

    @property
    def missing(self) -> Verdict | None:
        """The verdict of a guard that did not run, so that learning is unknown."""
        return next((one for one in self._verdicts if not one.ran), None)

    @property
    def _verdicts(self) -> list[Verdict]:
        return [one for one in (self.exact, self.wide) if one is not None]

    @property
    def holds(self) -> bool:
        """Whether every signal differs from the baseline's by no more than rounding."""
        return self.exact is not None and all(one.holds for one in self._verdicts)


@dataclass(frozen=True)
class LevelFound:
    """One level, measured."""

    level: Level
    settings: Settings
    """All settings that override the user's config."""
    switched: tuple[str, ...] = ()
    """Switches that came on at this level, or at a level below that is not in the report."""
    skipped: tuple[Skipped, ...] = ()
    """Switches that could not be tried; `tried` lists those tried and left out."""
    tried: tuple[Tried, ...] = ()
    guarded: Guarded | None = None
    """None for the baseline, the reference of the others."""
    speeds: tuple[float, ...] = ()
    """Samples per second, one launch per round."""
    figures: Figures | None = None
    cumulative: SpeedUp | None = None
    step_up: SpeedUp | None = None
    """The ratio over the level `step_over`."""
    step_over: str = ""
    """The last safe level below that has a ratio, or the baseline."""
    bottleneck: str = ""
    """The bottleneck of this level's speed in its rounds."""
    problem: str = ""
    """Why it has no ratio: it did not run, or its work differs."""

    @property
    def safe(self) -> bool:
        """Whether no guard saw a difference in learning; the baseline is safe."""
        return self.guarded is None or self.guarded.holds

    @property
    def unsafe(self) -> bool:
        """Whether it learns differently from the baseline."""
        return self.guarded is not None and self.guarded.broken is not None

    @property
    def unguarded(self) -> str:
        """Why its learning is unknown; empty if its guards ran."""
        missing = None if self.guarded is None else self.guarded.missing
        return "" if missing is None else missing.problem


@dataclass(frozen=True)
class TrlFound:
    """The same job with trl's defaults."""

    figures: Figures | None = None
    over_baseline: SpeedUp | None = None
    share: float | None = None
    """Share of the top level's gain that trl's defaults have, in logarithms; 0 if they are slower
    than the baseline, None without a gain or if `undecided`."""
    undecided: str = ""
    """Why the ratios do not decide the share."""
    problem: str = ""
    skipped: bool = False
    """Whether `problem` was known before the start, so that nothing was launched."""


def top_of(levels: Sequence[LevelFound]) -> LevelFound | None:
    """Return the highest safe level with a ratio over the baseline; of levels with equal settings
    the lowest. None if that is the baseline."""
    measured = [one for one in levels[1:] if one.cumulative is not None and one.safe]
    if not measured or measured[-1].settings == levels[0].settings:
        return None
    return next(one for one in measured if one.settings == measured[-1].settings)


@dataclass(frozen=True)
class Ladder:
    """The result of `canary ladder`."""

    name: str
    headline: str
    """Trainer, model and data in one line."""
    training_type: str
    machine: Machine
    created: str
    rounds: int
    levels: tuple[LevelFound, ...]
    trl: TrlFound
    folder: Path
    notes: tuple[str, ...] = ()
    launches: tuple[FinishedRun, ...] = ()
    """All launches, in order."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from canary.ladder.inline import of_ladder

        return of_ladder(self)._repr_html_()

    def __repr__(self) -> str:
        from canary.ladder.labels import answer

        return f"Ladder({self.headline!r}, {answer(self)!r})"

    @property
    def top(self) -> LevelFound | None:
        """The level in the report's first line, see `top_of`."""
        return top_of(self.levels)

    @property
    def passed(self) -> bool:
        """Whether every level was measured, did equal work, and has a guard that holds."""
        return not any(one.unsafe or one.unguarded or one.problem for one in self.levels)


@dataclass(frozen=True)
class Advised:
    """One choice of a switch, alone on top of the user's config."""

    switch: str
    settings: Settings
    gain: SpeedUp | None = None
    guard: Verdict | None = None
    problem: str = ""

    @property
    def worth_it(self) -> bool:
        """Whether it is faster for sure and leaves learning unchanged."""
        return self.gain is not None and self.gain.sure and self._safe

    @property
    def _safe(self) -> bool:
        return not self.problem and self.guard is not None and self.guard.holds


@dataclass(frozen=True)
class Advice:
    """The result of `--advise`: what to put into the user's config."""

    name: str
    headline: str
    training_type: str
    machine: Machine
    created: str
    rounds: int
    candidates: tuple[Advised, ...]
    """Sorted by gain, largest first; switches without a gain come last."""
    skipped: tuple[Skipped, ...]
    settings: Settings = field(default_factory=dict)
    """The best choice of each switch that is worth it."""
    together: Advised | None = None
    """All of these settings together."""
    base: Figures | None = None
    folder: Path = Path()
    notes: tuple[str, ...] = ()
    launches: tuple[FinishedRun, ...] = ()
    """All launches, in order."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from canary.ladder.inline import of_advice

        return of_advice(self)._repr_html_()

    def __repr__(self) -> str:
        from canary.ladder.advise_view import answer

        return f"Advice({self.headline!r}, {answer(self)!r})"

    @property
    def passed(self) -> bool:
        """Whether the guard of all recommended settings together holds."""
        return self.together is None or self.together.guard is None or self.together.guard.holds
