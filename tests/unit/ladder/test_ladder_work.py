"""Equal work: the tokens of a step, and the rows themselves."""

from __future__ import annotations

from typing import Any

from canary.ladder.timing import other_rows, unequal_work
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


def look(*steps: list[list[str]], masked: bool = True) -> Any:
    """A look's `exact`: of each step the rows of its micro-batches."""
    shapes = {"input_ids": [2, 8], **({"attention_mask": [2, 8]} if masked else {})}
    return {
        "batches": [
            [{"rows": {"input_ids": micro}, "shapes": shapes} for micro in step] for step in steps
        ]
    }


def test_rows_in_another_order_and_other_micro_batches_are_the_same() -> None:
    one = look([["a", "b"], ["c", "d"]], [["e"], ["f"]])
    assert other_rows(one, look([["d", "c", "b", "a"]], [["f", "e"]])) == ""


def test_a_row_that_stands_twice_in_the_place_of_another_is_told() -> None:
    said = other_rows(look([["a"]], [["b", "c"]]), look([["a"]], [["b", "b"]]))
    assert said == "different rows in step 2: 1 of 2 missing, 1 added"


def test_rows_whose_padding_is_not_told_are_not_compared() -> None:
    assert other_rows(look([["a"]], masked=False), look([["b"]], masked=False)) == ""
