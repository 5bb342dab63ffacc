"""What a comparison looks like, held by golden files.

After a wanted change: `UPDATE_GOLDEN=1 python -m pytest tests/unit/report/test_rendering.py`, then
read the difference that git shows.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.compare.report import Check, CheckStatus, Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import SMOKE_THRESHOLDS
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.report.numbers import amount, signed, significant
from canary.report.render import render, written
from canary.report.view import row_of
from tests.unit.comparing import plain

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
SUFFIX = {"text": "txt", "markdown": "md", "json": "json"}


def example(run_id: str, slower: float = 1.0) -> RunRecord:
    """The committed SFT run under another name, its times multiplied."""
    record = load_record(ROOT / "baselines" / "examples" / "sft_smoke.json").model_copy(deep=True)
    record.run_id = run_id
    for launch in record.launches:
        if launch.mean_step_time_s and launch.median_step_time_s:
            launch.mean_step_time_s *= slower
            launch.median_step_time_s *= slower
    for name in ("mean", "median", "p50", "p95", "p99", "min", "max"):
        setattr(record.perf.step_time, name, getattr(record.perf.step_time, name) * slower)
    assert record.perf.approx_tokens_per_sec is not None
    record.perf.approx_tokens_per_sec /= slower
    return record


def side(name: str, *factors: float) -> list[RunRecord]:
    """Runs whose times are spread a little."""
    return [example(f"{name}-{number}", factor) for number, factor in enumerate(factors, 1)]


BASE = side("base", 1.00, 1.01, 0.99, 1.005, 0.995)


def healthy() -> Comparison:
    return compare_to_baseline(
        side("head", 1.002, 1.008, 0.992, 1.004, 0.997), BASE, SMOKE_THRESHOLDS, paired=True
    )


def slower() -> Comparison:
    current = side("head", 1.21, 1.20, 1.19, 1.20, 1.21)
    return compare_to_baseline(current, BASE, SMOKE_THRESHOLDS, paired=True)


def changed() -> Comparison:
    """Twice the learning rate, an upgrade, and another config key, hostile to Markdown."""
    current = side("head", 1.002, 1.008, 0.992, 1.004, 0.997)
    for record in current:
        record.config["learning_rate"] *= 2
        record.config["model_revision"] = "a|b `c` <img> @everyone"
        record.env["packages"]["trl"] = "1.17.0"
        exact = plain(record)
        exact["trajectory"]["learning_rates"] = [
            2 * rate for rate in exact["trajectory"]["learning_rates"]
        ]
        exact["trajectory"]["losses"][1:] = [
            1.01 * loss for loss in exact["trajectory"]["losses"][1:]
        ]
    return compare_to_baseline(current, BASE, SMOKE_THRESHOLDS, paired=True)


def undecided() -> Comparison:
    return compare_to_baseline(example("head"), example("base"), SMOKE_THRESHOLDS)


def first() -> Comparison:
    return compare_to_baseline(example("head"), BASE[:2], SMOKE_THRESHOLDS, history=True)


def refused() -> Comparison:
    failed = example("head").model_copy(update={"status": "oom", "reason": "CUDA out of memory"})
    return compare_to_baseline(failed, BASE, SMOKE_THRESHOLDS)


CASES = {
    "pass": healthy,
    "regression": slower,
    "changed": changed,
    "inconclusive": undecided,
    "no-baseline": first,
    "error": refused,
}


def rounded(value: Any) -> Any:
    """Floats to nine digits: the last ones are the mathematics library's own."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", SUFFIX)
@pytest.mark.parametrize("verdict", CASES)
def test_a_comparison_looks_as_it_did(verdict: str, form: str) -> None:
    found = replace(CASES[verdict](), tier="smoke")
    assert found.verdict == verdict
    text = render(found, form)
    path = GOLDEN / f"{verdict}.{SUFFIX[form]}"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    golden = path.read_text(encoding="utf-8")
    if form == "json":
        assert rounded(json.loads(text)) == rounded(json.loads(golden))
    else:
        assert text == golden


def test_control_characters_of_a_record_do_not_reach_the_terminal() -> None:
    hostile = example("head")
    hostile.config["name"] = hostile.name = "x\x1b[2Jy"
    hostile.config["model_revision"] = "\x1b]0;title\x07"
    text = render(compare_to_baseline(hostile, example("base"), SMOKE_THRESHOLDS), "text")
    assert "\x1b" not in text
    assert "\x07" not in text


def test_all_forms_are_left_in_a_folder(tmp_path: Path) -> None:
    written(healthy(), tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["comparison.json", "comparison.md", "comparison.txt"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (amount(1_363_132_416), "1.363 G"),
        (amount(3177), "3,177"),
        (amount(0.000123456), "0.0001235"),
        (amount(None), "-"),
        (amount(float("nan"), "MB"), "NaN MB"),
        (amount(12.0, "%"), "12%"),
        (signed(0.04), "+0.04%"),
        (signed(-12.345), "-12.3%"),
        (signed(250.0), "+250%"),
        (signed(-1.5, "MB"), "-1.50 MB"),
        (significant(1e16), "1e+16"),
        (significant(float("-inf")), "-Inf"),
    ],
)
def test_numbers_have_units_and_sensible_digits(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("status", "detectable", "shown"),
    [("pass", 180.0, ""), ("pass", 12.0, "12%"), ("inconclusive", 180.0, "180%")],
)
def test_a_row_that_passes_does_not_say_that_more_than_its_tolerance_is_seen_at_best(
    status: CheckStatus, detectable: float, shown: str
) -> None:
    check = Check(
        *("cpu_time", "performance", "timing", status, ""),
        interval=(-64.4, 11.1),
        threshold=15.0,
        detectable=detectable,
    )
    assert row_of(check).detectable == shown
    drop = replace(check, threshold=-15.0, detectable=-detectable)
    assert row_of(drop).detectable == (f"-{shown}" if shown else "")
