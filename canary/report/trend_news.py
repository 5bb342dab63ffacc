"""What a run added to what is known of its history, as data for a process that trusts nobody.

It is computed anew from the stored runs, as they were when the run was stored: the same run says
the same again, and no later run repeats it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from canary.baseline.history import NOISE_FILE
from canary.compare.timing.noise import load_noise
from canary.errors import InputError
from canary.report.trend_hint import LOWEST, noise_before
from canary.report.trend_words import (
    LEAST_LEVEL,
    change_words,
    drift_words,
    sentence,
    told_once,
)
from canary.trends.history import trends_of_runs
from canary.trends.model import ChangePoint, Drift, HistoryTrends, Series, Standing
from canary.trends.runs import StoredRun, stored_runs

LOOKED_BACK = 12
"""Earlier states of the history that are asked whether they said it already."""
MOST = 2_000
Commit = Annotated[str, Field(pattern=r"^([0-9a-f]{12,64})?$")]
Text = Annotated[str, Field(max_length=1_000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Noted(_Part):
    """A change point or a drift of a series."""

    kind: Literal["step", "drift"]
    place: Annotated[int, Field(ge=0, lt=MOST)]
    """Of the first run of the new level, or of the drift."""
    within: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    """Places where it may have begun."""
    commit: Commit
    before: Commit
    """Of the last run before it."""
    standing: Standing
    worse: bool
    new: bool
    """Whether the newest run is the first to show it."""
    sentence: Text
    change: Annotated[float, Field(gt=-1, lt=1e9)]
    """Of the level, relative."""
    noise: Annotated[float, Field(ge=0, lt=1e9)]
    """Relative standard deviation of a run before it."""

    def is_at(self, place: int) -> bool:
        """Return whether a change that was once seen at a place is this one."""
        return self.within[0] <= place <= self.within[1] or abs(place - self.place) < LEAST_LEVEL


class FollowedSeries(_Part):
    """A metric, and what was found in it."""

    metric: Annotated[str, Field(min_length=1, max_length=300)]
    title: Text
    commits: Annotated[list[Commit], Field(max_length=MOST)]
    """Of each run; empty where unknown."""
    accepted: Annotated[list[int], Field(max_length=MOST)]
    """Places of runs that a person accepted."""
    noted: Annotated[list[Noted], Field(max_length=MOST)]

    def is_open(self, one: Noted) -> bool:
        """Return whether it is a confirmed change for the worse that holds, and that nobody
        accepted."""
        accepted = any(place >= one.place for place in self.accepted)
        return one.worse and one.standing == "confirmed" and not accepted


class News(_Part):
    """The history of a canary on a machine, when a run was stored."""

    canary: Annotated[str, Field(max_length=300)]
    machine: Annotated[str, Field(max_length=300)]
    series: Annotated[list[FollowedSeries], Field(max_length=200)]
    seconds: Annotated[float, Field(gt=0, lt=1e7)] | None
    """Of a typical measured launch, start included."""

    @property
    def new(self) -> list[Noted]:
        """What the newest run is the first to show, the worse first."""
        found = [one for series in self.series for one in series.noted if one.new]
        return sorted(found, key=lambda one: not one.worse)


def news_text(folder: Path, run_ids: Sequence[str]) -> str:
    """Return the news of these runs of a drawer as JSON of `News`.

    Later runs do not count. Without any of the runs, nothing is new.

    Raises:
        RecordError: an entry cannot be read.
        MachineError: a package that finds changes is missing.
    """
    runs = list(stored_runs(folder))
    last = max((n for n, run in enumerate(runs) if run.record.run_id in run_ids), default=None)
    runs = runs if last is None else runs[: last + 1]
    earlier = [run for run in runs if run.record.run_id not in run_ids]
    history = _History(folder, earlier)
    found = history.trends(runs)
    series = [_followed(one, history, any_new=last is not None) for one in found.series]
    kept = News(
        canary=folder.parent.name,
        machine=folder.name,
        series=series,
        seconds=found.launch_seconds,
    )
    return kept.model_dump_json()


class _History:
    """The states of a drawer before a run, each analysed at most once."""

    def __init__(self, folder: Path, earlier: Sequence[StoredRun]) -> None:
        self._noise = None
        with contextlib.suppress(InputError):
            self._noise = load_noise(folder / NOISE_FILE)
        self._earlier = earlier
        self._known: dict[int, HistoryTrends] = {}

    def trends(self, runs: Sequence[StoredRun]) -> HistoryTrends:
        """Return the trends of these runs."""
        return told_once(trends_of_runs(runs, self._noise))

    def said(self, metric: str, change: ChangePoint | Drift) -> bool:
        """Return whether an earlier state showed it already."""
        first = _place(change)
        least = max(first + 1, len(self._earlier) - LOOKED_BACK + 1)
        for count in range(len(self._earlier), least - 1, -1):
            if count not in self._known:
                self._known[count] = self.trends(self._earlier[:count])
            series = next((s for s in self._known[count].series if s.metric == metric), None)
            if series is not None and _shows(series, change):
                return True
        return False


def _place(change: ChangePoint | Drift) -> int:
    return change.place if isinstance(change, ChangePoint) else change.first


def _shows(series: Series, change: ChangePoint | Drift) -> bool:
    """Return whether the series shows the same change."""
    if isinstance(change, Drift):
        return series.drift is not None and series.drift.worse == change.worse
    return any(
        one.standing != "waiting"
        and (one.percent > 0) == (change.percent > 0)
        and (
            abs(one.place - change.place) < LEAST_LEVEL
            or change.within[0] <= one.place <= change.within[1]
        )
        for one in series.changes
    )


def _followed(series: Series, history: _History, *, any_new: bool) -> FollowedSeries:
    commits = [point.commit for point in series.points]
    changes: list[ChangePoint | Drift] = [*series.changes]
    changes += [series.drift] if series.drift is not None else []
    return FollowedSeries(
        metric=series.metric,
        title=series.title,
        commits=commits,
        accepted=[n for n, point in enumerate(series.points) if point.accepted],
        noted=[_noted(one, series, history, any_new) for one in changes],
    )


def _noted(change: ChangePoint | Drift, series: Series, history: _History, any_new: bool) -> Noted:
    is_step = isinstance(change, ChangePoint)
    place = _place(change)
    standing: Standing = change.standing if isinstance(change, ChangePoint) else "confirmed"
    words = (
        change_words(series, change)
        if isinstance(change, ChangePoint)
        else drift_words(series, change)
    )
    return Noted(
        kind="step" if is_step else "drift",
        place=place,
        within=change.within if isinstance(change, ChangePoint) else (change.first, change.last),
        commit=series.points[place].commit,
        before=series.points[place - 1].commit if place else "",
        standing=standing,
        worse=change.worse,
        new=any_new and standing == "confirmed" and not history.said(series.metric, change),
        sentence=sentence(words),
        change=max(change.percent / 100, LOWEST),
        noise=noise_before(series, place),
    )
