"""What the baseline was judged by and the current side did not record is never a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.unit.comparing import altered, history, on_gpu, record

BASELINE = history(0.005)
CURRENT = record(100)


def compared(current: RunRecord | list[RunRecord], kind: str = "sft") -> Comparison:
    baseline = BASELINE if kind == "sft" else history(0.005, 5, kind=kind)
    return compare_to_baseline(current, baseline, history=True)


def without(*path: Any, to: Any) -> Callable[[str], RunRecord]:
    return lambda kind: altered(record(100, kind=kind), *path, to=to)


LOST: dict[str, tuple[str, Callable[[str], RunRecord], str]] = {
    "losses": ("sft", without("stability", "loss_values", to=[]), "final_loss"),
    "gradients": ("sft", without("stability", "grad_norm_values", to=[]), "gradient_explosion"),
    "work": ("sft", without("exact", "work", to={}), "operators"),
    "live tensors": ("sft", without("exact", "memory", to={}), "live_tensors"),
    "files": ("sft", without("exact", "calls", to={}), "bytes_written"),
    "calls": ("sft", without("exact", "calls", to={}), "dataset_maps"),
    "frozen": ("dpo", without("exact", "frozen", to={}), "frozen_unchanged"),
    "peak": ("sft", without("perf", "max_mem_mb", to=None), "max_memory"),
    "kind of peak": ("sft", without("perf", "max_mem_kind", to="device"), "max_memory"),
    "growth": ("sft", without("memory", "growth", to=None), "memory_growth"),
    "first loss": ("sft", without("exact", "first_loss", "loss", to=None), "first_loss"),
    "first gradient": (
        "sft",
        without("exact", "first_gradient", "groups", to={}),
        "first_gradient",
    ),
    "first update": (
        "sft",
        without("exact", "first_update", "delta_norm", to=None),
        "first_update",
    ),
}


@pytest.mark.parametrize("name", list(LOST))
def test_what_was_lost_is_not_passed(name: str) -> None:
    kind, make, check = LOST[name]
    found = compared(make(kind), kind)
    assert found.check(check).status == "inconclusive"
    assert found.verdict == "inconclusive"


def test_a_metric_that_is_gone_is_not_passed() -> None:
    current = record(100, kind="grpo")
    del current.rl["reward"]
    found = compared(current, "grpo")
    assert found.check("reward").status == "inconclusive"
    assert found.verdict != "pass"


def test_a_metric_that_is_no_number_fails() -> None:
    current = record(100, kind="grpo")
    current.rl["reward"].mean = float("nan")
    found = compared(current, "grpo")
    assert found.check("reward").status == "fail"
    assert "not finite" in found.check("reward").message
    assert found.verdict == "regression"


def test_one_of_several_runs_that_lost_it_is_enough() -> None:
    runs = [record(n) for n in (100, 101, 102)]
    runs[1] = altered(runs[1], "perf", "max_mem_mb", to=None)
    assert compared(runs).check("max_memory").status == "inconclusive"


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        (("exact", "batches"), "batches"),
        (("exact", "trajectory", "losses"), "trajectory"),
        (("exact", "trajectory", "learning_rates"), "first_update"),
    ],
)
def test_a_look_that_ended_earlier_decides_nothing(path: tuple[str, ...], stage: str) -> None:
    value: Any = CURRENT.exact
    for key in path[1:]:
        value = value[key]
    found = compared(altered(CURRENT, *path, to=value[:1]))
    assert found.check(stage).status == "inconclusive"
    assert "1 steps, but the baseline has 12" in found.check(stage).message
    longer = [altered(run, *path, to=value[:1]) for run in BASELINE]
    assert compare_to_baseline(CURRENT, longer).check(stage).status == "pass"


def test_a_machine_that_is_not_named_is_not_comparable() -> None:
    baseline = [on_gpu(run) for run in BASELINE]
    nameless = on_gpu(CURRENT).model_copy(update={"env": {}})
    found = compare_to_baseline(nameless, baseline)
    assert found.verdict == "error"
    assert "not comparable" in found.first_line


def test_nothing_is_lost_where_neither_side_has_it() -> None:
    bare = [altered(run, "exact", "work", to={}) for run in BASELINE]
    found = compare_to_baseline(altered(CURRENT, "exact", "work", to={}), bare, history=True)
    assert found.check("operators").status == "skip"
    assert found.verdict == "pass"
