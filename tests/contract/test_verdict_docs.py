"""docs/verdict.md against the comparison: exit codes, limits, stages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Comparison, Verdict
from canary.compare.thresholds import TIER_THRESHOLDS, Thresholds, load_thresholds
from tests.contract.pages import DOCS, examples, read

PAGE = DOCS / "verdict.md"


def test_the_table_of_exit_codes_is_true() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (\d)(.*) \|$", read(PAGE), flags=re.MULTILINE)
    told = {verdict: (int(code), more) for verdict, code, more in rows}
    assert set(told) == set(get_args(Verdict))
    for verdict, (code, more) in told.items():
        found = Comparison(verdict, "")
        assert found.exit_code() == code, verdict
        if "`--strict`" in more:
            assert found.exit_code(strict=True) == int(re.findall(r"\d", more)[0])
        if "accepted" in more:
            assert Comparison(verdict, "", accepted="why").exit_code() == int(
                re.findall(r"\d", more)[0]
            )


def test_the_table_of_tiers_is_true() -> None:
    rows = re.findall(r"^\| `(max_\w+)` \|(.*)\|$", read(PAGE), flags=re.MULTILINE)
    assert len(rows) == 5
    for key, cells in rows:
        told = [float(cell) for cell in cells.split("|")]
        assert told == [getattr(tier, key) for tier in TIER_THRESHOLDS.values()], key
    shared = set(Thresholds.model_fields) - {key for key, _ in rows}
    default = TIER_THRESHOLDS["default"]
    for tier in TIER_THRESHOLDS.values():
        assert {k: getattr(tier, k) for k in shared} == {k: getattr(default, k) for k in shared}


def test_the_example_of_limits_loads(tmp_path: Path) -> None:
    (example,) = examples(PAGE, "yaml")
    path = tmp_path / "thresholds.yaml"
    path.write_text(example)
    assert load_thresholds(path).max_step_time_increase_pct == 6


def test_the_stages_of_the_page_are_those_of_the_lane() -> None:
    stages = re.findall(r"^\| \d+ \| (\w+) \|", read(PAGE), flags=re.MULTILINE)
    assert stages == ["environment", "config", *LEARNED_STAGES, "work", "memory", "calls"]
