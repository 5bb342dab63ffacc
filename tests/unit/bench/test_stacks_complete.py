"""What the stacks run calls a complete record, on a real one that is damaged in turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.stacks_complete import missing
from canary.compare.stats import load_metrics
from canary.record.types import RunRecord
from tests.unit.comparing import plain

RECORD = Path(__file__).parents[2] / "data" / "sft_trl_1.0.0.json"
LOG = "loading\n{'loss': '8.444', 'grad_norm': '17.37', 'epoch': '0.06'}\n"
STEPS, LOOK_STEPS = 12, 6


def lacking(record: RunRecord, log: str = LOG, kind: str = "sft") -> list[str]:
    return missing(record, log, kind, STEPS, LOOK_STEPS)


def real() -> RunRecord:
    return load_metrics(RECORD).model_copy(deep=True)


def test_a_real_record_lacks_nothing() -> None:
    assert lacking(real()) == []


DAMAGE: dict[str, Callable[[RunRecord], object]] = {
    "the run is failed": lambda r: setattr(r, "status", "failed"),
    "11 losses of 12 steps": lambda r: r.stability.loss_values.pop(),
    "losses that are not finite": lambda r: r.stability.loss_values.__setitem__(-1, float("nan")),
    "gradient norms missing": lambda r: r.stability.grad_norm_values.__setitem__(3, None),
    "phases add up to": lambda r: r.phases.update(other=1.0),
    "no time in phase backward": lambda r: r.phases.update(
        other=r.phases["other"] + r.phases["backward"], backward=0.0
    ),
    "no label_tokens counted": lambda r: r.tokens.pop("label_tokens"),
    "no exact stage first_update": lambda r: r.exact.pop("first_update"),
    "batches of 5 of 6 steps": lambda r: r.exact["batches"].pop(),
    "no tensor changed": lambda r: plain(r)["first_update"].update(tensors_changed=0),
    "no operators counted": lambda r: plain(r)["work"].update(operator_total=0),
    "live tensors not counted": lambda r: r.exact["memory"]["live_tensors"].pop(),
}


@pytest.mark.parametrize("words", DAMAGE)
def test_what_is_not_there_is_named(words: str) -> None:
    record = real()
    DAMAGE[words](record)
    assert any(line.startswith(words) for line in lacking(record)), lacking(record)


def test_a_loss_that_is_not_the_trainers_is_named() -> None:
    halved = LOG.replace("8.444", "4.222")
    assert lacking(real(), halved) == [
        "the trainer printed loss 4.222 for step 1, but the record has 8.444519758224487"
    ]
    assert lacking(real(), "") == ["the trainer printed no loss"]


def test_an_online_trainer_needs_its_phases_and_its_completions() -> None:
    found = lacking(real(), kind="grpo")
    assert "no time in phase generation" in found
    assert "no completion_tokens counted" in found
