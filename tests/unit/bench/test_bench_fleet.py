"""The simulated fleet judges as the program does, keeps its budget, and its seed decides."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest

from bench import fleet as program
from bench.power import make_record, template
from bench.simulated_fleet import (
    CHANGE,
    LIMITS,
    POLICIES,
    STEP_TIME,
    TYPES,
    Cell,
    GpuType,
    Nights,
    Policy,
    Subject,
    false_alarms,
    fleet,
    makespan,
    search,
    shown,
    verdict,
)
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord

QUIET, MEDIUM, NOISY = TYPES
SMALL = fleet(36)
BUDGET = max(cell.cost("ab") for cell in SMALL) + 40
STATUS = {"fail": "regression", "warn": "pass", "pass": "pass", "inconclusive": "inconclusive"}


def records(logs: list[float], first: int) -> list[RunRecord]:
    """Full records of one launch each."""
    base = template()
    return [
        make_record(base, np.full(90, math.exp(log)), first + i, 40_000.0, 90.0)
        for i, log in enumerate(logs)
    ]


@pytest.mark.parametrize("gpu", TYPES, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("pairs", [0, 5])
def test_a_simulated_comparison_says_what_the_real_one_says(gpu: GpuType, pairs: int) -> None:
    for seed in range(2):
        subject = Subject(gpu, random.Random(seed))
        now = subject.launches(pairs or 1, slower=True)
        was = subject.launches(pairs) or subject.history
        real = compare_to_baseline(
            records(now, 100),
            records(was, 0),
            LIMITS,
            paired=pairs > 0,
            history=pairs == 0,
            budget=0.002,
            gates=(STEP_TIME,),
        )
        (check,) = (one for one in real.checks if one.name == STEP_TIME)
        assert verdict(now, was, 0.002, paired=pairs > 0) == STATUS[check.status]


def test_a_noisier_type_needs_more_pairs() -> None:
    needed = []
    for factor in (0.3, 1.0, 2.0):
        gpu = replace(MEDIUM, launch_sd=factor * MEDIUM.launch_sd)
        seen = [shown(gpu, random.Random(seed)) for seed in range(15)]
        needed.append(statistics.median(one.pairs for one in seen))
    assert needed[0] < needed[1] < needed[2]


def test_pairs_are_asked_for_only_where_one_run_is_too_noisy_and_pairs_are_not() -> None:
    asked = {
        gpu.name: [shown(gpu, random.Random(seed)).verb for seed in range(40)].count("ab")
        for gpu in TYPES
    }
    assert asked["quiet"] == 0
    assert asked["noisy"] <= 4
    assert asked["medium"] > 20


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_no_night_spends_more_than_its_budget(policy: Policy) -> None:
    for slower in (None, lambda cell: cell.gpu is NOISY):
        nights = Nights(policy, SMALL, BUDGET, random.Random(1), slower)
        spent = [nights.night().spent for _ in range(6)]
        assert 0 < max(spent) <= BUDGET


def test_a_budget_that_is_too_small_for_a_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="a cell may cost"):
        Nights(POLICIES[0], SMALL, 10.0, random.Random(1))


def named(name: str) -> Policy:
    return next(policy for policy in POLICIES if policy.name == name)


def found_within(policy: Policy, cells: list[Cell], slower: Cell, nights: int) -> bool:
    """Whether a regression of one cell is found."""
    run = Nights(policy, cells, BUDGET, random.Random(2), lambda cell: cell is slower)
    return any(run.night().found for _ in range(nights))


def test_only_a_rotation_reaches_the_last_cell_of_the_file() -> None:
    cells = [Cell("sft", QUIET, 1) for _ in range(500)]
    in_order, rotation = map(named, ("file order, each night from the start", "oldest first"))
    assert len(cells) * cells[0].cost("run") > 3 * BUDGET
    assert not found_within(in_order, cells, cells[-1], 12)
    assert found_within(rotation, cells, cells[-1], 12)


def test_pairs_that_confirm_leave_fewer_false_alarms() -> None:
    cells = [Cell("sft", QUIET, 1) for _ in range(100)]
    alarms = {
        policy.confirms: false_alarms(policy, cells, 400.0, 3, 10)
        for policy in (named("oldest first"), named("oldest first, pairs confirm failures"))
    }
    assert alarms[False] > 2
    assert alarms[True] == 0


def test_the_seed_decides() -> None:
    policy = POLICIES[-1]
    answers = [search(policy, SMALL, BUDGET, seed) for seed in ("a", "a", "b", "c")]
    assert answers[0] == answers[1]
    assert len(set(answers)) > 1


def test_cells_wait_for_free_gpus() -> None:
    one = Cell("sft", QUIET, 1)
    assert makespan([one] * 4, "run", 2) == pytest.approx(2 * one.minutes("run"))
    assert makespan([replace(one, ranks=2), one], "run", 2) == pytest.approx(2 * one.minutes("run"))


def test_five_percent_on_a_quiet_type_is_found_by_one_run() -> None:
    subject = Subject(QUIET, random.Random(4))
    assert CHANGE == 0.05
    assert subject.run(slower=True) == "regression"
    assert subject.run(slower=False) != "regression"


def test_rates_have_intervals() -> None:
    assert program.rate(0, 100) == "0 (0 to 4)"
    assert program.rate(10, 100) == "10 (5 to 18)"
    assert program.quantile([1.0] * 70 + [math.inf] * 30, 0.5) == "1 (1 to 1)"
    assert program.quantile([1.0] * 70 + [math.inf] * 30, 0.9) == "never (never to never)"


def test_every_table_says_that_it_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    program.main(["--budgets", "600", "--trials", "1", "--histories", "2", "--nights", "1"])
    parts = capsys.readouterr().out.strip().split("\n\n")
    assert len(parts) == 8
    assert all(part.startswith("Simulated: ") for part in parts[::2])
    assert all(part.startswith("| ") for part in parts[1::2])
