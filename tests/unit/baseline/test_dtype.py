"""`dtype` of a training without autocast: what its parameters are, in records old and new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from canary.baseline.comparability import machine_key
from canary.compare.exact.changes import config_changes, environment_changes
from canary.compare.exact.lane import all_differences
from canary.compare.exact.tolerances import TOLERANCES, tolerance_for
from canary.record.types import RunRecord
from canary.training.exact.effective import describe_training, scales_gradients
from canary.training.recorder.loop import Loop
from tests.unit.comparing import example


@dataclass
class Arguments:
    bf16: bool = False
    fp16: bool = False


class Trainer:
    def __init__(self, model: torch.nn.Module, **arguments: bool) -> None:
        self.model = model
        self.args = Arguments(**arguments)


def loaded(*dtypes: torch.dtype) -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(2, 2, dtype=dtype) for dtype in dtypes))


@pytest.mark.parametrize(
    ("dtypes", "arguments", "expected"),
    [
        ((torch.float32,), {}, "float32"),
        ((torch.bfloat16,), {}, "bfloat16"),
        ((torch.float16,), {}, "float16"),
        ((torch.bfloat16, torch.float32), {}, "mixed"),
        ((torch.float32,), {"bf16": True}, "bfloat16"),
        ((torch.bfloat16,), {"fp16": True}, "float16"),
    ],
)
def test_dtype_is_that_of_autocast_or_else_of_the_parameters(
    dtypes: tuple[torch.dtype, ...], arguments: dict[str, bool], expected: str
) -> None:
    trainer = Trainer(loaded(*dtypes), **arguments)
    found = describe_training(trainer)
    assert found["dtype"] == expected
    assert scales_gradients(found) == arguments.get("fp16", False)
    if not arguments:
        assert Loop("loop", model=trainer.model).describe()["dtype"] == expected


def own(dtype: str, parameters: dict[str, int], **arguments: Any) -> RunRecord:
    record = example()
    record.config |= {
        "command": ["python", "train.py"],
        "trainer": "trl.SFTTrainer",
        "dtype": dtype,
        "trainer_args": {"bf16": False, "fp16": False, **arguments},
    }
    record.env["device"] = {**(record.env.get("device") or {}), "dtype": dtype}
    record.exact["model"]["dtypes"] = parameters
    return record


BF16 = {"torch.bfloat16": 29}
BOTH = {"torch.bfloat16": 20, "torch.float32": 9}
PACKED = {"torch.bfloat16": 20, "torch.uint8": 9}


@pytest.mark.parametrize(("dtype", "parameters"), [("bfloat16", BF16), ("mixed", BOTH)])
def test_a_record_that_called_it_float32_shows_no_change_and_stays_the_baseline(
    dtype: str, parameters: dict[str, int]
) -> None:
    before, after = own("float32", parameters), own(dtype, parameters)
    assert config_changes(before, after) == environment_changes(before, after) == ()
    assert config_changes(after, before) == environment_changes(after, before) == ()
    assert machine_key(before) == machine_key(after)


def test_another_dtype_of_autocast_is_a_change() -> None:
    before = own("float32", {"torch.float32": 29})
    after = own("bfloat16", {"torch.float32": 29}, bf16=True)
    assert "dtype" in [change.key for change in config_changes(before, after)]
    assert "device.dtype" in [change.key for change in environment_changes(before, after)]
    assert machine_key(after) != machine_key(before)


@pytest.mark.parametrize("command", [["python", "train.py"], None])
def test_parameters_of_another_dtype_are_no_change_that_somebody_asked_for(
    command: list[str] | None,
) -> None:
    before, after = own("float32", {"torch.float32": 29}), own("bfloat16", BF16)
    for side in (before, after):
        side.config["command"] = command
    if command is None:
        after.config["dtype"] = "float32"
    assert config_changes(before, after) == environment_changes(before, after) == ()
    assert "model" in [found.stage for found in all_differences(before, after)]


@pytest.mark.parametrize(
    ("dtype", "parameters", "row"),
    [
        ("bfloat16", BF16, "bfloat16"),
        ("mixed", BOTH, "bfloat16"),
        ("mixed", PACKED, "quantized"),
        ("mixed", {}, "float32"),
        ("float32", BF16, "float32"),
    ],
)
def test_what_rounding_may_move_follows_the_narrowest_parameters(
    dtype: str, parameters: dict[str, int], row: str
) -> None:
    assert tolerance_for(own(dtype, parameters)) is TOLERANCES[row]
