"""What a run adds to its history: said once, and again when the same job runs again."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from canary.baseline.history import Context, drawer, save
from canary.errors import RecordError
from canary.record.types import RunRecord
from canary.report.trend_news import FollowedSeries, News, news_text
from tests.unit.comparing import record

STEP = 14
"""Place of the first slower run."""


def runs(
    count: int, *, change: float = 0.15, until: int = 10_000, seed: int = 5
) -> list[RunRecord]:
    """Runs that are slower from `STEP` to `until`."""
    rng = random.Random(seed)
    return [
        record(n, 0.1 * (1 + change * (STEP <= n < until)) * math.exp(rng.gauss(0, 0.008)))
        for n in range(count)
    ]


def commit(place: int) -> str:
    return f"{place + 1:02x}" * 20


def stored(root: Path, made: list[RunRecord], first: int = 0) -> Path:
    """The drawer of these runs, each of a commit of its own."""
    for place, run in enumerate(made[first:], start=first):
        save(root, run, context=Context(commit=commit(place), verdict="pass"))
    return drawer(root, made[0])


def news(folder: Path, *of: RunRecord) -> News:
    return News.model_validate_json(news_text(folder, [run.run_id for run in of]))


def step_time(found: News) -> FollowedSeries:
    return next(one for one in found.series if one.metric == "step_time_median")


def told(found: News) -> list[str]:
    return [one.commit for one in step_time(found).noted if one.new]


def test_a_change_is_new_for_the_run_that_confirms_it_and_for_no_other(tmp_path: Path) -> None:
    made = runs(24)
    by_run = []
    for count in range(STEP, len(made)):
        folder = stored(tmp_path, made[: count + 1], first=0 if count == STEP else count)
        by_run.append(told(news(folder, made[count])))
    assert sum(bool(one) for one in by_run) == 1
    assert by_run[0] == by_run[1] == [], "a change needs three runs after it"
    assert [commit(STEP)] in by_run


def test_the_same_job_says_the_same_again_after_later_runs(tmp_path: Path) -> None:
    made = runs(30)
    said = []
    for count in range(STEP, 24):
        folder = stored(tmp_path, made[: count + 1], first=0 if count == STEP else count)
        said.append(told(news(folder, made[count])))
    folder = stored(tmp_path, made, first=24)
    assert [told(news(folder, made[count])) for count in range(STEP, 24)] == said


def test_the_sentence_is_that_of_the_pages_and_has_what_a_search_needs(tmp_path: Path) -> None:
    made = runs(24)
    found = news(stored(tmp_path, made), made[-1])
    (one,) = [one for one in step_time(found).noted if one.worse]
    assert one.sentence.startswith("Step time +1")
    assert f"since commit {commit(STEP)[:9]}" in one.sentence
    assert (one.commit, one.before) == (commit(STEP), commit(STEP - 1))
    assert one.change == pytest.approx(0.15, abs=0.03)
    assert one.noise == pytest.approx(0.008, rel=0.6)
    assert found.canary == "sft_smoke"
    assert step_time(found).is_open(one)


def test_a_spike_is_no_news(tmp_path: Path) -> None:
    made = runs(24, change=0.0)
    made[20] = record(20, 0.2)
    folder = stored(tmp_path, made)
    for run in made[20:]:
        assert not news(folder, run).new


def test_a_level_that_returned_is_not_open(tmp_path: Path) -> None:
    made = runs(34, until=24)
    found = step_time(news(stored(tmp_path, made), made[-1]))
    standings = {one.commit: one.standing for one in found.noted if one.worse}
    assert standings == {commit(STEP): "returned"}
    assert not any(map(found.is_open, found.noted))
    assert any(one.standing == "confirmed" for one in found.noted if not one.worse)


def test_of_an_unknown_run_nothing_is_new(tmp_path: Path) -> None:
    made = runs(24)
    folder = stored(tmp_path, made)
    assert not News.model_validate_json(news_text(folder, ["other"])).new


def test_an_entry_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    made = runs(5)
    folder = stored(tmp_path, made)
    (folder / "2026-01-01T00:00:09+00:00_x.json").write_text("{")
    with pytest.raises(RecordError):
        news_text(folder, [made[-1].run_id])
