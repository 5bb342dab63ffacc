"""The same update by another way: learning is equal, and the work is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.compare.exact.recorded_stages import LEARNED_STAGES
from canary.compare.stats import compare_to_baseline
from tests.integration.conftest import run_config, settings

pytestmark = pytest.mark.train


def test_half_the_micro_batch_with_twice_the_accumulation_is_more_work_and_the_same_learning(
    tmp_path: Path,
) -> None:
    whole, halves = (
        run_config(
            tmp_path / f"{size}x{times}",
            settings("sft", batch_size=size, gradient_accumulation_steps=times, max_steps=6),
        ).record()
        for size, times in ((4, 1), (2, 2))
    )
    found = compare_to_baseline(halves, [whole])
    learned = {c.name: c.status for c in found.checks if c.name in LEARNED_STAGES}
    assert learned.pop("batches") == "warn"
    assert set(learned.values()) == {"pass"}
    assert found.check("operators").status == "fail"
    assert "aten." in next(d for d in found.differences if d.stage == "work").sentence()
    suspect = found.diagnosis.suspects[0]
    assert suspect.category.value == "kernel"
    assert "2 micro-batches per step" in suspect.description
