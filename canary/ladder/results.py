"""The results of a ladder, as the reports and their JSON have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from canary.errors import InputError, RecordError
from canary.ladder.guard import Guarded
from canary.ladder.switches import Level, Machine, Settings
from canary.ladder.timing import Figures, SpeedUp
from canary.record.folder import read_document

FILE = "ladder.json"
"""File of a ladder's folder that holds the result."""


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
        """Whether it learns differently from the baseline. A level that is neither safe nor unsafe
        has a guard that did not run: what it learns is unknown."""
        return self.guarded is not None and self.guarded.broken is not None


@dataclass(frozen=True, kw_only=True, repr=False)
class Ladder:
    """The result of `canary ladder`."""

    name: str
    headline: str
    """Trainer, model and data in one line."""
    training_type: str
    machine: Machine
    created: str
    rounds: int
    folder: Path
    notes: tuple[str, ...] = ()
    levels: tuple[LevelFound, ...]

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from canary.ladder.report import inline

        return inline(self)._repr_html_()

    def __repr__(self) -> str:
        from canary.ladder.report import report_of

        return f"Ladder({self.headline!r}, {report_of(self).answer!r})"

    @property
    def top(self) -> LevelFound | None:
        """The highest safe level with a ratio over the baseline; of levels with equal settings the
        lowest. None if that is the baseline."""
        measured = [one for one in self.levels[1:] if one.cumulative is not None and one.safe]
        if not measured or measured[-1].settings == self.levels[0].settings:
            return None
        return next(one for one in measured if one.settings == measured[-1].settings)

    @property
    def passed(self) -> bool:
        """Whether every level was measured, did equal work, and has a guard that holds."""
        return all(one.safe and not one.problem for one in self.levels)


def load_result(folder: Path | str) -> Ladder:
    """Return what `canary ladder` left in a folder.

    Raises:
        InputError: the folder has no result.
        RecordError: it cannot be read.
    """
    file = Path(folder) / FILE
    if not file.is_file():
        hint = "name a folder such as canary_output/ladder-DATE-TIME"
        raise InputError(f"{folder} has no result of canary ladder", hint)
    document = read_document(file, "ladder", "run canary ladder again")
    try:
        return TypeAdapter(Ladder).validate_python(document)
    except (ValidationError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise damaged(file) from error


def damaged(file: Path) -> RecordError:
    """Return the error about a file that is no result."""
    return RecordError(f"{file} is not the result of a ladder", "run it again")
