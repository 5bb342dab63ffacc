"""A buffer that a collator reuses leaves ends of rows behind; repeated texts are none."""

from __future__ import annotations

import random

import pytest

from canary.training.asking.leftover import Buffer

END = 1
WIDTH = 60


def text(size: int, chance: random.Random) -> list[int]:
    return [*(chance.randrange(3, 200) for _ in range(size - 1)), END]


def seen(calls: list[list[list[int]]]) -> Buffer:
    """Return what is known after calls whose rows are padded with zeros."""
    buffer = Buffer()
    for rows in calls:
        width = max(map(len, rows))
        lines = [row + [0] * (width - len(row)) for row in rows]
        spans = [_span(line) for line in lines]
        buffer.add(lines, spans)
    return buffer


def _span(line: list[int]) -> tuple[int, int]:
    real = [place for place, one in enumerate(line) if one]
    return (real[0], real[-1] + 1) if real else (0, 0)


def collated(reuses: bool, rows: int, seed: int, calls: int = 6) -> list[list[list[int]]]:
    chance = random.Random(seed)
    buffer = [[0] * WIDTH for _ in range(rows)]
    made = []
    for _ in range(calls):
        texts = [text(chance.randrange(6, WIDTH), chance) for _ in range(rows)]
        width = max(map(len, texts))
        for row, one in enumerate(texts):
            buffer[row] = [*one, *(buffer[row] if reuses else [0] * WIDTH)[len(one) :]]
        made.append([[*row[:width]] for row in buffer])
    return made


@pytest.mark.parametrize("rows", [2, 8])
def test_a_reused_buffer_is_found(rows: int) -> None:
    found = seen(collated(True, rows, seed=rows)).left_over()
    assert len(found) > 1


@pytest.mark.parametrize("rows", [2, 8])
def test_a_fresh_buffer_is_not(rows: int) -> None:
    assert not any(seen(collated(False, rows, seed)).left_over() for seed in range(30))


def test_rows_seen_again_are_no_leftovers() -> None:
    calls = collated(False, 4, seed=0, calls=1)
    assert not seen(calls * 4).left_over()


def test_an_answer_that_comes_often_is_no_leftover() -> None:
    """Prompts of the same length, and one of two answers."""
    chance = random.Random(0)
    answers = [text(12, chance), text(12, chance)]
    calls = [[text(9, chance)[:-1] + chance.choice(answers) for _ in range(2)] for _ in range(12)]
    assert not seen(calls).left_over()


def test_a_template_that_ends_single_rows_is_no_leftover() -> None:
    chance = random.Random(0)
    end = text(20, chance)
    assert not seen([[text(9, chance)[:-1] + end] for _ in range(6)]).left_over()


def test_one_end_alone_may_be_chance() -> None:
    chance = random.Random(3)
    before = [text(40, chance), text(30, chance)]
    after = [text(10, chance) + before[0][10:], text(40, chance)]
    assert not seen([before, after]).left_over()
