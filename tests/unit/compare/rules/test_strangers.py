"""Facts and answers that a stranger wrote into a record: refused, or shown as text alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from canary.compare.rules import answers
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.report.render import render
from canary.report.rules import answer_text
from tests.unit.comparing import example

HOSTILE = "<img src=x> [a](http://evil.example) @team www.evil.example\n::error::x \x1b[31m"
FOLLOWED = {"class": HOSTILE, "updates": 3}
SIZES = "Using a target size "
MANY_DIGITS = f"{SIZES}(Size([{'9' * 9000}])) Size([1])"
NEW = {"first": -1, "frozen": True, "rows": -1, "rows_with": 2}
LOADED = {"model": HOSTILE, "given": -1, "name": HOSTILE, "wanted": HOSTILE}
HOLDING = {"missing": 2, "missing_names": [HOSTILE], "tensors": 1, "trainable": 3}


def with_exact(key: str, value: Any) -> RunRecord:
    document = json.loads(example().model_dump_json())
    document["exact"][key] = value
    return RunRecord.model_validate(document | {"run_id": "other"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("facts", {"updates": 1}),
        ("facts", {"updates": {"optimizers": [{"backwards": ["x"]}]}}),
        ("facts", {"texts": {"sets_bos": HOSTILE}}),
        ("facts", {"updates": {"optimizers": [{}]}}),
        ("facts", {"updates": {"optimizers": [{"updates": 2, "rounding": {"asked": 9}}]}}),
        ("facts", {"updates": {"schedules": [{"length": 9}]}}),
        ("asked", {"causality": {"status": "weird", "words": 1}}),
    ],
)
def test_what_is_no_fact_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        with_exact(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("facts", {"loaders": [{}]}),
        ("facts", {"updates": {"optimizers": [FOLLOWED], "holding": HOLDING}}),
        ("facts", {"updates": {"schedules": [{"length": -1, "steps": [10**30]}]}}),
        ("facts", {"loaders": [{"workers": 2, "seen": 2, "draw_the_same": [HOSTILE]}]}),
        ("facts", {"unseen": {HOSTILE: HOSTILE}}),
        ("facts", {"warned": [{"library": HOSTILE, "text": MANY_DIGITS}]}),
        ("facts", {"warned": [{"library": "torch", "text": SIZES + "Size([" * 9000}]}),
        ("facts", {"loads": [LOADED]}),
        ("facts", {"clips": {"clips": -1, "empty": 10**30, "scaled": 10**30}}),
        ("facts", {"texts": {"new_tokens": NEW}}),
        ("facts", {"texts": {"rows_read": -1, "rows_open": 10**30}}),
        ("work", {"outer_losses": [[[1]], [[], []], [[2, 1], [2], [3]]]}),
        ("asked", {"causality": {}}),
        ("asked", {"causality": {"status": "broken", "words": HOSTILE * 50, "place": HOSTILE}}),
    ],
)
def test_what_a_stranger_wrote_is_shown_as_text(key: str, value: Any) -> None:
    record = with_exact(key, value)
    compared = compare_to_baseline(record, example())
    shown = "".join(
        [
            *(render(compared, form) for form in ("text", "markdown")),
            *(answer_text(answers(record), "run", form, 80) for form in ("text", "markdown")),
        ]
    )
    assert "\x1b" not in shown
    assert "\n::error" not in shown
    page = render(compared, "markdown") + answer_text(answers(record), "run", "markdown")
    assert "<img" not in page
    assert "](http://evil" not in page
