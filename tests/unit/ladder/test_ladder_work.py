"""Equal work: the tokens of a step."""

from __future__ import annotations

from typing import Any

from canary.ladder.timing import unequal_work
from canary.record.step_row import Row


def rows(*tokens: int, **rest: Any) -> list[Any]:
    """Rows of a reward model's steps, which count no labels."""
    return [{"samples": 8, "input_tokens": count, "rl": {}, **rest} for count in tokens]


def test_a_row_that_is_dropped_is_missed_where_there_are_no_labels() -> None:
    """`samples` is a product of settings, and the same."""
    said = unequal_work(rows(300, 310), rows(300, 280))
    assert said == "280 tokens without padding in step 2 instead of 310"
    assert unequal_work(rows(300, 310), rows(300, 310)) == ""


def test_what_does_not_say_what_it_is_fed_is_judged_by_the_rest() -> None:
    silent: list[Row] = [{"samples": 8, "rl": {}}]
    assert unequal_work(rows(300), silent) == ""
    assert unequal_work(rows(300), [{"samples": 4, "rl": {}}]) != ""
