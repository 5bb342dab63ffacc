"""The words of a comparison are for people: nothing is decided by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from canary.compare.report import Check, Comparison
from canary.compare.stats import compare_to_baseline
from canary.github.section import CUTS, comment_view
from canary.report.document import comparison_from, document
from canary.report.render import render
from canary.report.view import STATUS_WORDS, view_of
from tests.unit.compare.timing.test_crowding import side
from tests.unit.comparing import altered, example, history, noise_model, record
from tests.unit.gating import imported
from tests.unit.ppo_records import compared, ppo


def crowded() -> Comparison:
    """Other work on the machine made the times, and with them a phase that would be named."""
    sides = [
        side([time] * 5, first, delay=0.48, own=100.0, machine=100.0)
        for time, first in ((0.1, 0), (0.28, 100))
    ]
    for one in (*sides[0], *sides[1]):
        one.env["device"] = {"type": "cpu", "threads": 2}
        one.launches[0].phases_steady = {"data": 0.002, "forward": 0.03, "backward": 0.05}
    for one in sides[1]:
        one.launches[0].phases_steady |= {"data": 0.11, "backward": 0.12}
    return compare_to_baseline(sides[1], sides[0])


def scattered() -> Comparison:
    return compare_to_baseline(record(100, 0.2), history(0.035), noise=noise_model(0.01))


def untimed() -> Comparison:
    return compared(ppo(1))


def slower() -> Comparison:
    return compare_to_baseline(record(100, 0.2), history(0.01), history=True)


CASES: list[tuple[Callable[[], Comparison], str | None]] = [
    (crowded, "crowded"),
    (scattered, "scattered"),
    (untimed, "untimed"),
    (slower, None),
]


def decided(found: Comparison) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "checks": [(check.name, check.status, check.unjudged) for check in found.checks],
        "suspects": [(one.category, one.confidence) for one in found.diagnosis.suspects],
        "words": found.first_line.partition(" ")[0],
        "unmeasured": "speed was not measured" in found.first_line,
    }


@pytest.mark.parametrize(("make", "unjudged"), CASES)
def test_checks_that_say_it_otherwise_decide_the_same(
    make: Callable[[], Comparison], unjudged: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = make()
    assert before.check("step_time_median").unjudged == unjudged
    said = Check.__init__

    def otherwise(check: Check, *given: Any, **named: Any) -> None:
        said(check, *given, **named)
        object.__setattr__(check, "message", f"{check.name} in other words")

    monkeypatch.setattr(Check, "__init__", otherwise)
    assert decided(make()) == decided(before)


def test_a_saved_comparison_keeps_why_a_time_was_not_judged_where_it_was_told() -> None:
    found = crowded()
    saved = document(found)
    read = comparison_from(saved)
    assert [one.unjudged for one in read.checks] == [one.unjudged for one in found.checks]
    for check in saved["checks"]:
        del check["unjudged"]
    assert {one.unjudged for one in comparison_from(saved).checks} == {None}


def test_which_rows_are_folded_and_cut_is_not_told_by_their_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = slower()
    passed = [check.name for check in found.checks if check.status == "pass"]
    for words in STATUS_WORDS, {status: f"<{status}>" for status in STATUS_WORDS}:
        monkeypatch.setattr("canary.report.view.STATUS_WORDS", words)
        cut = dict(CUTS)["checks that passed"](comment_view(found))
        assert not {row.name for row in cut.rows} & set(passed)
        assert len(cut.rows) == len(comment_view(found).rows) - len(passed)
        text = render(found, "text", 200)
        assert f"{len(passed)} checks ok" in text


def test_a_remedy_of_several_undecided_checks_is_said_once() -> None:
    found = compare_to_baseline(record(10, 0.1, mean_s=0.13), record(1, 0.106, mean_s=0.12))
    assert len(view_of(found).undecided) > 2
    for form in ("text", "markdown"):
        assert render(found, form).count("Run each side three times") == 1
    failed = compare_to_baseline(
        altered(record(10), "exact", "first_loss", "loss", to=9.0), record(1, 0.106)
    )
    assert failed.verdict == "changed"
    for form in ("text", "markdown"):
        assert render(failed, form).count("Run each side three times") == 1


def test_a_reason_that_skipped_several_checks_is_said_once() -> None:
    found = compare_to_baseline(imported(record(10)), imported(record(1)))
    reason = "both sides were imported, without exact signals"
    for form in ("text", "markdown"):
        assert render(found, form).count(reason) == 1


def test_checks_that_a_run_lacks_are_one_line() -> None:
    before = example()
    after = altered(altered(before, "exact", "model", to={}), "exact", "work", to={})
    after.run_id = "after"
    found = compare_to_baseline(after, [before])
    view = view_of(found)
    lacking = [row for row in view.undecided if row.message.startswith("recorded on the baseline")]
    assert len(lacking) == 1
    names = lacking[0].name.split(", ")
    assert len(names) > 2
    assert {row.name for row in view.rows if row.status == "?"} >= {*names}
