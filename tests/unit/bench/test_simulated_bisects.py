"""The simulated machine is as noisy as it says, and the table counts right and wrong answers."""

from __future__ import annotations

import random
import statistics

import pytest

from bench.simulated_bisects import Cell, Result, Row, bars, bisect_run, table, trial
from bench.simulated_launches import PLACES, Machine, broken, merged


def test_launches_vary_as_much_as_asked() -> None:
    machine = Machine(random.Random(0), PLACES["steady"], 0.05, 0.1, 3)
    values = [machine.launch(0) for _ in range(2000)]
    assert statistics.stdev(values) == pytest.approx(0.05, rel=0.1)


def test_every_history_ends_with_all_commits_and_parents_come_first() -> None:
    for seed in range(20):
        states = merged(random.Random(seed), 64)
        assert states[-1] == 2**64 - 1
        for number, state in enumerate(states):
            assert state >> number == 1
            held = [other for i, other in enumerate(states) if state >> i & 1]
            assert all(state | other == state for other in held)
        assert states[-1] not in broken(random.Random(seed), states)


def test_right_and_wrong_answers_are_counted() -> None:
    cell = Cell("steady", 0.001, 0.2)
    right = trial(lambda machine, history: bisect_run(machine, history, 1), cell, 0)
    assert (right.right, right.wrong, right.launches) == (True, False, 8)
    wrong = trial(lambda machine, history: Result((70,), 5), cell, 0)
    assert (wrong.right, wrong.wrong) == (False, True)
    nothing = trial(lambda machine, history: Result((), 5), cell, 0)
    assert (nothing.right, nothing.wrong) == (False, False)
    row = Row(cell, "canary", [right, wrong, nothing, nothing])
    assert "| linear | steady | 0% | +20% | 25/25/50, 6 |" in table([row])
    assert any(line.startswith("MISSED wrong, worst cell: 25.0%") for line in bars([row]))


def test_without_a_change_every_decided_answer_is_wrong() -> None:
    found = trial(lambda machine, history: Result((3,), 5), Cell("steady", 0.05, 0.0), 0)
    assert found.wrong
