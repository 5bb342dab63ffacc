"""The page of a history: its runs, periods, red runs, machine changes and noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.baseline.entry import Accepted, Context
from canary.baseline.history import save
from canary.cli import main
from canary.errors import InputError
from canary.report.history_page import history_page
from tests.unit.comparing import record
from tests.unit.pages.making import Read, numbers

RUNS = 12


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twelve runs: 5 is red, 9 is accepted and 20% slower, 4 is the first with another torch."""
    for number in range(1, RUNS + 1):
        run = record(number, 0.1 * (1.2 if number >= 9 else 1.0) + 0.001 * (number % 3))
        if number >= 4:
            run.env["packages"] = {**run.env["packages"], "torch": "9.9.9"}
        verdict = "regression" if number == 5 else "pass"
        accepted = Accepted(by="me", reason="twice the batch") if number == 9 else None
        context = Context(commit=f"{number:040x}", verdict=verdict, accepted=accepted)
        save(tmp_path / "history", run, context=context)
    return tmp_path / "history"


def test_every_run_stands_there_with_commit_period_verdict_and_machine(root: Path) -> None:
    found = numbers(history_page(root, "here"), "history1-step_time")
    assert found["columns"][0] == "run"
    rows = found["rows"]
    assert [row[0] for row in rows] == list(range(1, RUNS + 1))
    assert rows[4][2:5] == [f"{5:040x}"[:9], "regression", None]
    assert [row[4] for row in rows] == [1, 1, 1, 1, None, 1, 1, 1, 2, 2, 2, 2]
    assert [row[0] for row in rows if row[-1]] == [4]
    assert rows[3][-1] == "torch"
    assert [row[5] for row in rows][-1] == pytest.approx(120.0)


def test_its_finding_compares_the_newest_run_with_its_period(root: Path) -> None:
    text = Read(history_page(root, "here")).text
    assert "Step time of the newest of 12 runs: 120 ms, -0.4% against its period's median" in text
    assert "inside the noise band of 2 standard deviations" in text
    assert "(1 failed; 2 periods; the machine changed once)" in text
    assert "12 runs of 1 canary." in text


def test_a_canary_can_be_chosen_and_a_wrong_name_is_told(root: Path) -> None:
    assert "12 runs" in history_page(root, "here", "sft_smoke")
    with pytest.raises(InputError, match=r"no runs of canary 'x' \(it has: sft_smoke\)"):
        history_page(root, "here", "x")


def test_the_verb_writes_it_into_the_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(root)])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"wrote {root / 'report.html'}\n"
    assert "12 runs" in (root / "report.html").read_text(encoding="utf-8")


def test_without_the_extra_the_verb_says_how_to_get_it(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canary.report.pages.can_draw", lambda: False)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(root)])
    assert ended.value.code == 4
    assert "pip install altair vl-convert-python" in capsys.readouterr().err
    assert not (root / "report.html").exists()
