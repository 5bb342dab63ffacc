"""Which of several changed config keys an answer names, and in which order."""

from __future__ import annotations

from typing import Any

from canary.compare.exact.changes import shown
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds
from canary.record.types import RunRecord
from tests.unit.comparing import altered
from tests.unit.diagnosing import sides


def with_keys(run: RunRecord, **keys: Any) -> RunRecord:
    return altered(run, "config", to={**run.config, **keys})


KEYS = {"dataset_size": 64, "max_length": 96, "learning_rate": 1e-3}


def test_all_changed_keys_are_named_with_their_values() -> None:
    before, after = sides()
    found = compare_to_baseline(with_keys(after, **KEYS), before, gates=())
    (difference,) = found.differences
    assert all(
        f"{key} {shown(before.config[key])} -> {KEYS[key]}" in difference.detail for key in KEYS
    )


def test_the_key_that_costs_memory_comes_first_where_memory_grew() -> None:
    before, after = sides()
    after = with_keys(after, **KEYS)
    after.perf.max_mem_mb = 1.5 * (before.perf.max_mem_mb or 0)
    limits = Thresholds(max_mem_increase_mb=1)
    found = compare_to_baseline(after, before, limits, gates=("max_memory",))
    assert found.check("max_memory").status == "fail"
    assert found.config_changes[0].key == "max_length"
    assert found.differences[0].signal == "max_length"
    assert found.places.ran[0].name == "max_length"


def test_the_key_of_what_was_learned_comes_first() -> None:
    before, after = sides()
    rates = [2 * (rate or 0) for rate in after.exact["trajectory"]["learning_rates"]]
    after = altered(with_keys(after, **KEYS), "exact", "trajectory", "learning_rates", to=rates)
    found = compare_to_baseline(after, before, gates=())
    assert found.check("first_update").status == "changed"
    assert [one.name for one in found.places.ran] == ["learning_rate", "dataset_size", "max_length"]
