"""Each project's schema: what we write is of its form, and what it writes can be read.

The files below have the form of the projects' own, with values of ours. docs/golden.md says which
of their checkers read our files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, RootModel

from canary.errors import InputError, UsageError
from canary.golden.check import check
from canary.golden.schemas import SCHEMAS, read_golden
from canary.golden.write import write
from canary.record.curves import Source
from tests.unit.comparing import example
from tests.unit.golden.golden_runs import LOSSES, NORMS, run, run_folder, shifted

TIMES = (0.5, 0.1, 0.1, 0.1, 0.1)


def written(root: Path, form: str, *wanted: str, **rest: Any) -> Path:
    """A golden file of a run."""
    file = root / f"golden.{form}"
    write(run_folder(root, "golden-run", **rest), file, form, wanted, {})
    return file


@pytest.mark.parametrize("form", SCHEMAS)
def test_a_run_gives_its_own_golden_values(tmp_path: Path, form: str) -> None:
    file = written(tmp_path, form)
    golden = read_golden(file)
    assert golden.schema == form
    found = check(run(tmp_path), golden, file)
    assert found.equal
    assert {one.name for one in found.metrics} <= {"loss", "grad_norm"}


@pytest.mark.parametrize("form", SCHEMAS)
def test_another_loss_differs_in_every_schema(tmp_path: Path, form: str) -> None:
    file = written(tmp_path, form)
    other = run(tmp_path, "run-2", {"loss": shifted(LOSSES, 0.01), "grad_norm": NORMS})
    found = check(other, read_golden(file), file)
    assert found.exit_code == 1
    assert found.first_step == 3


@pytest.mark.parametrize("form", SCHEMAS)
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_value_that_is_not_finite_is_never_written(tmp_path: Path, form: str, value: str) -> None:
    values = {"loss": (*LOSSES[:3], value, 0.5), "grad_norm": NORMS}
    with pytest.raises(InputError, match=f"loss is {value} at step 4 of run golden-run"):
        written(tmp_path, form, values=values)
    assert not list(tmp_path.glob("golden.*"))


class GoldenValueMetric(BaseModel):
    """Megatron-LM's own schema, tests/functional_tests/python_test_utils/common.py."""

    start_step: int
    end_step: int
    step_interval: int
    values: dict[int, int | float | str]


class GoldenValues(RootModel[dict[str, GoldenValueMetric]]):
    """Its whole file."""


def test_megatron_reads_our_file(tmp_path: Path) -> None:
    values = {"loss": (2.123456789, *LOSSES[1:]), "grad_norm": NORMS, "step_time_s": TIMES}
    file = written(tmp_path, "megatron", "loss", "step_time_s", values=values)
    whole = GoldenValues.model_validate_json(file.read_text()).root
    assert list(whole) == ["lm loss", "iteration-time"]
    loss = whole["lm loss"]
    assert (loss.start_step, loss.end_step, loss.step_interval) == (1, 5, 1)
    assert loss.values[1] == 2.12346
    assert check(run(tmp_path, "run-2", values), read_golden(file), file).equal


MEGATRON = {
    "lm loss": {
        "start_step": 1,
        "end_step": 4,
        "step_interval": 2,
        "values": {"1": 2.5, "2": 1.25, "4": 0.8125},
    },
    "num-zeros": {
        "start_step": 1,
        "end_step": 4,
        "step_interval": 2,
        "values": {"1": "nan", "2": "nan", "4": 7},
    },
}


def megatron(folder: Path, **changes: Any) -> Path:
    """A file of Megatron-LM's form, of a test that samples every second step."""
    file = folder / "golden_values_dev_dgx_h100.json"
    file.write_text(json.dumps({**MEGATRON, **changes}, indent=4))
    return file


def test_a_sampled_megatron_file_asks_only_for_its_steps(tmp_path: Path) -> None:
    values = {"loss": LOSSES[:4], "num-zeros": (7, 7, 7, 7)}
    found = check(run(tmp_path, values=values), read_golden(megatron(tmp_path)), tmp_path)
    loss, zeros = found.metrics
    assert (loss.equal, loss.steps) == (True, 3)
    # Their own check takes "nan" for a missing step; ours asks for the number.
    assert zeros.sentence() == "the golden file has no value at step 2"


def test_megatron_leaves_one_step_free_and_we_do_not(tmp_path: Path) -> None:
    file = megatron(tmp_path)
    values = {"loss": (2.5, 1.5, 0.9, 0.8125), "num-zeros": (7, 7, 7, 7)}
    found = check(run(tmp_path, values=values), read_golden(file), file, ["loss"])
    assert not found.equal
    assert any("no step is free" in note for note in found.notes)


def test_iteration_times_of_megatron_are_a_median_of_its_window(tmp_path: Path) -> None:
    steps = {str(step): 9.0 if step < 5 else 1.0 for step in range(1, 21)}
    times = {"start_step": 1, "end_step": 20, "step_interval": 1, "values": steps}
    file = megatron(tmp_path, **{"iteration-time": times})
    values = {"step_time_s": [2.0] * 4 + [1.04] * 16}
    found = check(run(tmp_path, values=values), read_golden(file), file, ["iteration-time"])
    assert found.equal
    slow = {"step_time_s": [9.0] * 4 + [1.06] * 16}
    far = check(run(tmp_path, "run-2", slow), read_golden(file), file, ["iteration-time"])
    assert not far.equal


def test_torchtitan_reads_our_file(tmp_path: Path) -> None:
    """As scripts/loss_compare.py reads it: two words per line, an int and a float."""
    file = written(tmp_path, "torchtitan")
    pairs = [line.strip().split() for line in file.read_text().splitlines()]
    assert {int(step): float(loss) for step, loss in pairs} == dict(enumerate(LOSSES, 1))
    assert file.read_text().startswith("1 2.5\n2 1.25\n")


def test_a_file_of_torchtitans_form_is_read(tmp_path: Path) -> None:
    file = tmp_path / "losses.txt"
    file.write_text("1 8.25\n2 7.5\n3 7.125\n")
    found = check(run(tmp_path, values={"loss": (8.25, 7.5, 7.125)}), read_golden(file), file)
    assert found.equal
    assert found.metrics[0].tag == "loss_metrics/global_avg_loss"


def test_nemo_reads_our_file(tmp_path: Path) -> None:
    """As tests/json_dump_tb_logs.py writes: tags sorted, steps as texts."""
    file = written(tmp_path, "nemo")
    document = json.loads(file.read_text())
    assert list(document) == ["train/grad_norm", "train/loss"]
    assert document["train/loss"]["2"] == 1.25


def test_trl_reads_our_file(tmp_path: Path) -> None:
    """As tests/invariant/test_invariant.py reads it: config, env and steps."""
    document = json.loads(written(tmp_path, "trl").read_text())
    assert set(document) == {"config", "env", "steps"}
    assert set(document["config"]) == {"name", "method", "args"}
    assert {"accelerate", "torch", "transformers", "trl", "python", "gpu"} == set(document["env"])
    assert document["steps"][0] == {"step": 1, "loss": 2.5, "grad_norm": 4.0}
    assert all(isinstance(value, str) for value in document["config"]["args"].values())


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        ({"method": "sft", "args": {}}, ("0.001,mean=1e-05", "0.1,mean=0.001")),
        (
            {"method": "sft", "args": {"attn_implementation": "kernels-community/flash-attn2"}},
            ("0.015,mean=0.001", "5,mean=0.25"),
        ),
        ({"method": "dpo", "args": {}}, ("0.0001,mean=1e-05", "0.01,mean=0.001")),
        ({}, ("0.0001,mean=1e-05", "0.01,mean=0.001")),
    ],
)
def test_trl_has_limits_of_its_own(
    tmp_path: Path, config: dict[str, Any], limits: tuple[str, str]
) -> None:
    steps = [{"step": 1, "loss": 2.5, "grad_norm": 4.0}]
    file = tmp_path / "sft.json"
    file.write_text(json.dumps({"config": config, "env": {}, "steps": steps}))
    metrics = read_golden(file).metrics
    assert tuple(str(metrics[name].tolerance) for name in ("loss", "grad_norm")) == limits


def test_an_imported_run_has_the_names_of_its_source(tmp_path: Path) -> None:
    names = {"loss": "actor/pg_loss", "reward": "critic/score/mean"}
    of = example().model_copy(update={"source": Source(format="jsonl", preset="verl", names=names)})
    values = {"loss": LOSSES, "reward": (0.1, 0.2, 0.3, 0.4, 0.5)}
    folder = run_folder(tmp_path, "imported", values, of=of)
    file = tmp_path / "metrics.json"
    write(folder, file, "nemo", ["loss", "reward"], {})
    assert set(json.loads(file.read_text())) == {"actor/pg_loss", "critic/score/mean"}
    other = run(tmp_path, "imported-2", values, of=of)
    found = check(other, read_golden(file), file)
    assert found.equal
    assert {one.name for one in found.metrics} == {"loss", "reward"}


def test_a_metric_can_be_given_another_name_in_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "nemo", "loss=train/preference_loss")
    assert list(json.loads(file.read_text())) == ["train/preference_loss"]
    found = check(run(tmp_path), read_golden(file), file, ["loss=train/preference_loss"])
    assert found.equal


@pytest.mark.parametrize("form", ["torchtitan", "trl"])
def test_a_schema_without_room_refuses_other_metrics(tmp_path: Path, form: str) -> None:
    with pytest.raises(UsageError, match="cannot hold 'learning_rate'"):
        written(tmp_path, form, "learning_rate")


def test_trl_needs_gradient_norms(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no metric 'grad_norm'"):
        written(tmp_path, "trl", values={"loss": LOSSES})


def test_torchtitan_gets_float32_numbers(tmp_path: Path) -> None:
    """The sum of two float32 losses may lie between two float32 numbers; theirs never do."""
    between = 1.0 + 2.0**-24
    losses = (between, 0.5)
    file = written(tmp_path, "torchtitan", values={"loss": losses})
    assert file.read_text() == "1 1.0\n2 0.5\n"
    assert check(run(tmp_path, "run-2", {"loss": losses}), read_golden(file), file).equal
