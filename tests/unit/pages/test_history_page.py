"""The page of a history: its runs, periods, red runs, machine changes and noise."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from canary.baseline.entry import Accepted, Context
from canary.baseline.history import save
from canary.cli import main
from canary.errors import InputError
from canary.report.charts.history import history_charts
from canary.report.history_page import history_page
from canary.report.page import Page, page_text
from canary.report.trend_words import findings
from canary.trends.model import (
    ChangePoint,
    HistoryTrends,
    Level,
    MachineChange,
    Series,
    StoredPoint,
)
from tests.unit.comparing import record
from tests.unit.hostile import PAYLOADS
from tests.unit.pages.making import Read, numbers

RUNS = 12


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs: 5 is red, 9 is accepted and 20% slower, 4 is the first with another torch."""
    root = tmp_path_factory.mktemp("history")
    for number in range(1, RUNS + 1):
        run = record(number, 0.1 * (1.2 if number >= 9 else 1.0) + 0.001 * (number % 3))
        if number >= 4:
            run.env["packages"] = {**run.env["packages"], "torch": "9.9.9"}
        verdict = "regression" if number == 5 else "pass"
        accepted = Accepted(by="me", reason="twice the batch") if number == 9 else None
        context = Context(commit=f"{number:040x}", verdict=verdict, accepted=accepted)
        save(root, run, context=context)
    return root


@pytest.fixture
def root(stored: Path, tmp_path: Path) -> Path:
    """A copy to write into."""
    return shutil.copytree(stored, tmp_path / "history")


@pytest.mark.usefixtures("undrawn")
def test_every_run_stands_there_with_commit_period_verdict_and_machine(stored: Path) -> None:
    found = numbers(history_page(stored, "here"), "history1-step_time_median")
    assert found["columns"][0] == "run"
    rows = found["rows"]
    assert [row[0] for row in rows] == list(range(1, RUNS + 1))
    assert rows[4][2:5] == [f"{5:040x}"[:9], "regression", None]
    assert [row[4] for row in rows] == [1, 1, 1, 1, None, 1, 1, 1, 2, 2, 2, 2]
    assert [row[0] for row in rows if row[-1]] == [4]
    assert rows[3][-1] == "torch"
    assert [row[5] for row in rows][-1] == pytest.approx(120.0)


@pytest.mark.usefixtures("undrawn")
def test_a_canary_can_be_chosen_and_a_wrong_name_is_told(stored: Path) -> None:
    assert "12 runs" in history_page(stored, "here", "sft_smoke")
    with pytest.raises(InputError, match=r"no canary 'x' in here \(it has: sft_smoke\)"):
        history_page(stored, "here", "x")


def test_the_verb_writes_it_into_the_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(root)])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"wrote {root / 'report.html'}\n"
    assert "12 runs" in (root / "report.html").read_text(encoding="utf-8")


# The charts of hand-made trends.

DRIVER = MachineChange("driver", "550.90", "570.10")
WORSE = ChangePoint(
    place=6,
    percent=6.1,
    interval=(4.0, 8.2),
    worse=True,
    standing="confirmed",
    runs_after=6,
    within=(5, 7),
    machine=(DRIVER,),
)


def made(title: str = "step time", commit: str = "", **values: object) -> Series:
    """Twelve runs, 6.1% slower from the seventh on."""
    points = tuple(
        StoredPoint(
            f"run-{place}",
            commit or f"{place:x}" * 40,
            f"2026-01-{place + 1:02}T00:00:00",
            100.0 + 6.1 * (place >= 6) + 0.2 * (place % 3),
            1,
            "pass",
            False,
        )
        for place in range(12)
    )
    levels = (Level(0, 5, 100.2, (99.8, 100.6)), Level(6, 11, 106.3, (105.9, 106.7)))
    base = Series("step_time_median", title, "ms", True, points, levels, (WORSE,))
    return replace(base, **values)  # type: ignore[arg-type]


def drawn(series: Series, machines: bool = True) -> str:
    """The page of one series."""
    changes = ((6, (DRIVER,)),) if machines else ()
    found = HistoryTrends("sft", "cpu", (series,), (), changes)
    return page_text(Page("history", "One."), list(history_charts(found, "history1")))


def test_a_change_point_stands_in_the_picture_with_commit_percent_and_machine() -> None:
    page = drawn(made())
    assert "+6.1% 666666666, driver" in page
    assert "Step time +6.1% [4.0, 8.2] since commit 666666666" in Read(page).text


def test_a_level_that_returned_is_no_finding_and_still_a_mark() -> None:
    series = made(changes=(replace(WORSE, standing="returned"),))
    assert not findings(series)
    page = drawn(series)
    assert "666666666, driver, returned" in page
    assert "and no change holds" in page


def test_levels_have_an_interval_and_the_table_has_their_values() -> None:
    rows = numbers(drawn(made()), "history1-step_time_median")["rows"]
    assert [row[6] for row in rows] == [100.2] * 6 + [106.3] * 6
    assert [row[7] for row in rows if row[7] is not None] == [6.1]
    assert rows[6][8] == "driver"


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), 1e300])
def test_numbers_without_end_are_drawn(odd: float) -> None:
    change = replace(WORSE, percent=odd, interval=(odd, odd))
    assert "<svg" in drawn(made(changes=(change,)))


def test_a_strangers_texts_stay_texts() -> None:
    plain, payload = {tag for tag, _ in Read(drawn(made())).tags}, " ".join(PAYLOADS)
    fact = MachineChange(payload, payload, payload)
    hostile = made(title=payload, commit=payload, changes=(replace(WORSE, machine=(fact,)),))
    assert {tag for tag, _ in Read(drawn(hostile)).tags} <= plain


def test_many_changes_of_many_runs_are_drawn() -> None:
    changes = tuple(replace(WORSE, place=place) for place in range(3, 1990, 3))
    points = tuple(replace(made().points[0], value=float(place)) for place in range(2000))
    rows = numbers(drawn(made(points=points, changes=changes)), "history1-step_time_median")["rows"]
    assert len(rows) < 1000
