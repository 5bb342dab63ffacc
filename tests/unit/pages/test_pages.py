"""A page: one file, readable without scripts, with the comparison's numbers and no other code."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.step_row import Row
from canary.record.types import RunRecord
from canary.report import comparison_page
from canary.report.charts.curves import cost_charts
from canary.report.charts.sides import ShownRun, ShownSides, shown_run
from canary.report.view import view_of
from tests.unit.compare.rules.test_update_rules import ADAM
from tests.unit.comparing import altered, example, history, record, records
from tests.unit.gating import imported
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.pages.making import Read, numbers, page_of, page_of_sides, rows

WORDS = pytest.mark.usefixtures("undrawn")


def learning_twice_as_fast() -> RunRecord:
    """A run whose losses leave the baseline's from step 3 on."""
    changed = record(9)
    losses = changed.stability.loss_values
    changed.stability.loss_values = losses[:2] + [0.9 * loss for loss in losses[2:]]
    return changed


@pytest.fixture(scope="module")
def slower() -> Comparison:
    return compare_to_baseline(records([0.15] * 3, first=50), history(), history=True)


@pytest.fixture(scope="module")
def page() -> str:
    """The page of a change that is slower, with the steps of every run."""
    return page_of(records([0.15] * 3, first=50), history(count=5), steps=120)


def test_ten_charts_of_120_points_take_less_than_a_megabyte(page: str) -> None:
    charts = re.findall(r'id="numbers-(\w+)"', page)
    assert len(charts) >= 10, charts
    assert len(page.encode()) < 1_000_000
    assert max(len(numbers(page, name)["rows"]) for name in charts) >= 120


def test_verdict_first_line_and_tables_are_there_without_scripts(page: str) -> None:
    read = Read(page)
    found = compare_to_baseline(records([0.15] * 3, first=50), history(count=5))
    view = view_of(found)
    assert view.first_line in read.text
    for row in view.rows:
        assert row.name in read.text
        assert not row.baseline or row.baseline in read.text
    assert len(read.named("svg")) == len(read.named("figure"))


def test_each_chart_has_its_finding_its_table_and_its_csv(page: str) -> None:
    read = Read(page)
    charts = re.findall(r'id="numbers-(\w+)"', page)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert len(captions) == len(charts)
    assert all(re.search(r"\d", caption) and caption.endswith(".") for caption in captions)
    assert {attributes.get("data-csv") for attributes in read.named("button")} == set(charts)
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in read.named("svg"))


def test_nothing_is_requested_and_only_our_script_runs(page: str) -> None:
    read = Read(page)
    names = {tag for tag, _ in read.tags}
    assert not names & {"link", "img", "iframe", "object", "embed", "base", "form", "image", "use"}
    for _, attributes in read.tags:
        assert not {"href", "src", "srcset", "xlink:href", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = (meta["content"] for meta in read.named("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert len(scripts) == 1
    for text in (*scripts, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


@WORDS
def test_the_charts_numbers_are_the_comparisons(slower: Comparison) -> None:
    current, baseline = records([0.15] * 3, first=50), history()
    sides = ShownSides(tuple(map(ShownRun, current)), tuple(map(ShownRun, baseline)), slower)
    page = page_of_sides(sides)
    losses = numbers(page, "loss")
    place = losses["columns"].index("current")
    shown = {row[0]: row[place] for row in losses["rows"]}
    assert shown == dict(enumerate(current[-1].stability.loss_values, start=1))


def answers_of(page: str) -> dict[str, str]:
    """The answers at the top, by their questions."""
    cards = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    return {question: html.unescape(answer) for question, answer in cards}


def noisy_and_undecided() -> tuple[list[RunRecord], list[RunRecord]]:
    """Runs whose mean says no and whose median is undecided."""
    walls = (0.10, 0.16, 0.09)
    return records(walls, first=50), records((0.11, 0.15, 0.10))


@WORDS
def test_a_run_whose_speed_is_undecided_is_not_called_as_fast() -> None:
    current, baseline = noisy_and_undecided()
    found = compare_to_baseline(current, baseline)
    undecided = [c for c in found.checks if c.lane == "timing" and c.status == "inconclusive"]
    assert undecided, "the example must be undecided"
    answer = answers_of(page_of(current, baseline))["Is it slower?"]
    assert answer.startswith("Not decided: ")
    assert any(check.message in answer for check in undecided)


def uneven_steps() -> tuple[list[RunRecord], list[RunRecord]]:
    """Two single runs: their medians and their means differ by other shares."""
    return [record(50, 0.1, mean_s=0.13)], [record(1, 0.106, mean_s=0.12)]


@WORDS
def test_the_answer_about_speed_is_the_number_of_the_first_line() -> None:
    current, baseline = uneven_steps()
    found = compare_to_baseline(current, baseline)
    median = found.check("step_time_median").message
    assert median in found.first_line
    page = page_of(current, baseline)
    assert answers_of(page)["Is it slower?"] == f"Not decided: {median}."


@WORDS
def test_runs_that_cannot_be_compared_have_no_baseline_in_their_charts() -> None:
    other = altered(record(1), "config", "training_type", to="dpo")
    found = compare_to_baseline([record(9)], [other])
    assert found.verdict == "error"
    shown = page_of([record(9)], [other], steps=5)
    assert "baseline" not in numbers(shown, "loss")["columns"][1:]
    assert answers_of(shown) == {}


@WORDS
def test_where_learning_leaves_the_baseline_is_said_and_marked() -> None:
    page = page_of([learning_twice_as_fast()], history(count=3))
    caption = re.search(r'id="loss".*?<figcaption>(.*?)</figcaption>', page, re.DOTALL)
    assert caption
    assert "first leaves the 3 baseline runs at step 3" in caption[1]


@WORDS
def test_an_alert_stands_at_its_step() -> None:
    changed = record(9)
    changed.alerts = [
        {"severity": "high", "category": "loss", "type": "spike", "message": "m", "step": 7}
    ]
    found = numbers(page_of([changed], history(count=3)), "loss")
    assert [row[0] for row in found["rows"] if row[-1]] == [7]


def test_a_loss_that_is_not_finite_is_said() -> None:
    changed = record(9)
    changed.stability.loss_values[4:6] = [float("nan"), float("inf")]
    page = page_of([changed], history(count=3))
    assert "2 of 100 steps are not finite, from step 5 on" in Read(page).text
    found = numbers(page, "loss")
    assert [row[found["columns"].index("current")] for row in found["rows"]][4:6] == ["nan", "inf"]


@WORDS
def test_a_run_alone_has_a_page_without_answers_about_a_baseline() -> None:
    page = page_of([record(1)], steps=30)
    read = Read(page)
    assert "baseline" not in re.sub(
        r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL
    )
    assert "Completed" in read.text
    assert "How sure?" not in read.text


def test_no_text_of_a_record_becomes_an_element() -> None:
    payload = " ".join((*PAYLOADS, "</script><script>alert(1)</script>", "'\"><b>"))
    clean = Read(page_of([example()], history(count=3), steps=5))
    hostile = planted(payload)
    hostile.stability.loss_values = example().stability.loss_values
    hostile.alerts = [
        {"severity": "high", "category": payload, "type": payload, "message": payload, "step": 3}
    ]
    read = Read(page_of([hostile], history(count=3), steps=5))
    assert {tag for tag, _ in read.tags} <= {tag for tag, _ in clean.tags} | {"ul", "li", "details"}
    known = {name for _, attributes in clean.tags for name in attributes} | {"open"}
    assert {name for _, attributes in read.tags for name in attributes} <= known
    assert len(read.named("script")) == len(read.named("button")) + 1


def test_rows_of_a_stranger_cannot_fail_the_page(tmp_path: object) -> None:
    strange = [
        {"launch": 1, "step": 10**9, "wall_s": -1.0, "phases": {}, "rl": {"kl": float("inf")}}
    ]
    sides = ShownSides(
        (ShownRun(record(1), (*rows(3), *strange)),),  # type: ignore[arg-type]
        (ShownRun(record(2)),),
        compare_to_baseline(record(1), record(2)),
    )
    assert "KL" in page_of_sides(sides)
    assert page_of_sides(replace(sides, baseline=()))


def test_what_failed_is_at_the_top_of_the_checks(page: str) -> None:
    table = page[page.index('<section id="checks">') :]
    states = re.findall(r'<tr class="([^"]+)">', table)
    assert states[0] == "fail"
    assert states == sorted(states, key=["fail", "changed", "warn", "?", "ok", "skipped"].index)


@pytest.mark.parametrize("name", ["steps.jsonl", "steps.rank1.jsonl"])
def test_steps_that_are_no_regular_file_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "steps.jsonl").touch()
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert shown_run(record(1), tmp_path).rows == ()
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert shown_run(record(1), tmp_path).rows == ()


def test_a_page_of_imported_runs_calls_no_unknown_setting_equal() -> None:
    runs = [imported(record(number)) for number in range(4)]
    page = page_of([runs[3]], runs[:3])
    assert "packages, driver, device and threads, as far as an import records them" in page
    assert "No stage was compared." in page


def test_memory_that_hardly_moves_has_one_figure_and_draws_no_cliff() -> None:
    size = int(314.3 * 2**20)
    flat: list[Row] = [
        {"launch": 1, "step": step, "wall_s": 0.1, "rss_bytes": size + 4096 * (step == 20)}
        for step in range(1, 21)
    ]
    run, before = record(9, memory_mb=314.304), record(1, memory_mb=314.3)
    found = compare_to_baseline([run], [before])
    sides = ShownSides((ShownRun(run, tuple(flat)),), (ShownRun(before),), found)
    (chart,) = [one for one in cost_charts(sides) if one.name == "memory"]
    assert chart.finding == "The peak is 314.3 MB (baseline 314.3 MB)."
    assert chart.spec()["layer"][0]["encoding"]["y"]["scale"]["zero"] is True


def test_step_times_are_those_of_timed_steps() -> None:
    made = record(9)
    made.config["metrics_warmup_steps"] = 4
    looked: list[Row] = [{**row, "look": row["step"] == 7} for row in rows(20)]
    sides = ShownSides((ShownRun(made, tuple(looked)),))
    (chart,) = [one for one in cost_charts(sides) if one.name == "steps"]
    steps = [row[0] for row in chart.rows]
    assert steps == [5, 6, *range(8, 21)]


def test_the_page_of_a_run_alone_begins_with_a_broken_rule() -> None:
    broken = example()
    whole: Any = broken.exact
    whole["facts"] = {"updates": {"optimizers": [ADAM | {"left": 11, "emptied": 0}]}}
    page = comparison_page.page_of("", compare_to_baseline(broken, []), broken)
    assert (page.verdict, page.first_line[:28]) == ("regression", "Regression: 11 of 11 updates")
    healthy = comparison_page.page_of("", compare_to_baseline(example(), []), example())
    assert healthy.verdict == "completed"
