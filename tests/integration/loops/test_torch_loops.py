"""`canary exec` records loops of plain torch whole, and changes nothing of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from canary.compare.stats import compare_to_baseline
from canary.record.jsonio import read_rows
from tests.integration.exec.user_scripts import PYTHON, Ended, bare, watched
from tests.integration.loops.torch_scripts import (
    GAN_OF_ONE_MODEL,
    INSIDE_BACKWARD,
    RANKS,
    SCRIPTS,
    write_script,
)

pytestmark = [pytest.mark.train, pytest.mark.slow]

LOOKED_AT = ("--name", "own", "--set", "look_steps=5")
TORCHRUN = (PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
WHOLE = {
    *("data", "batches", "model", "first_loss", "first_gradient", "first_update", "trajectory"),
    *("work", "memory", "calls", "frozen", "clipping", "evidence"),
}
FAULTS: dict[str, tuple[dict[str, float], tuple[str, str | None]]] = {
    "rate": ({"rate": 2e-3}, ("config", "learning_rate")),
    "scale": ({"scale": 1.5}, ("first_loss", "loss")),
    "batches": ({"shift": 1}, ("batches", None)),
}


def losses_of(ended: Ended) -> list[float]:
    return list(json.loads(ended.line("losses").removeprefix("losses ")))


def run(folder: Path, name: str, **fault: float) -> Ended:
    folder.mkdir(exist_ok=True)
    loop = (SCRIPTS | RANKS)[name]
    write_script(folder, loop, **fault)  # type: ignore[arg-type]
    words = (*TORCHRUN, "train.py") if name in RANKS else (PYTHON, "train.py")
    return watched(folder, *words, options=LOOKED_AT)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_loop_is_recorded_whole_and_trains_as_if_alone(tmp_path: Path, name: str) -> None:
    write_script(tmp_path, SCRIPTS[name])
    alone = bare(tmp_path, PYTHON, "train.py")
    assert alone.code == 0, alone.err
    whole = run(tmp_path, name)
    assert (whole.code, whole.out) == (0, alone.out), whole.err
    record = whole.record()
    assert record.status == "completed"
    assert record.stability.loss_values == losses_of(alone)
    assert set(record.exact) >= WHOLE, record.notes
    assert record.exact["trajectory"]["losses"] == pytest.approx(losses_of(alone)[:5], rel=1e-5)
    assert all(record.exact["trajectory"]["grad_norms"])
    assert record.config["training_type"] == "custom"
    assert record.config["learning_rate"] in (1e-3, 1e-2, 1e-1)
    assert record.config["batch_size"] in (4, 8)
    assert record.exact["first_update"]["tensors_changed"] > 0
    assert all(record.exact["batches"]), record.exact["batches"]
    if "enumerate(loader(" in SCRIPTS[name] and "gan" not in name:
        entered = [micro.get("fed_sha256") for step in record.exact["batches"] for micro in step]
        assert None not in entered
    assert whole.folder is not None
    for row in read_rows(whole.folder / "steps.jsonl"):
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"], rel=1e-6)
        assert {"forward", "backward", "optimizer"} <= set(row["phases"]) or "compiled" in name


@pytest.mark.parametrize("name", ["accumulated", "gan"])
def test_equal_runs_are_equal_and_a_fault_is_found_at_its_first_stage(
    tmp_path: Path, name: str
) -> None:
    whole = run(tmp_path, name).record()
    again = run(tmp_path, name).record()
    assert set(whole.exact) >= WHOLE <= set(again.exact), (whole.notes, again.notes)
    assert compare_to_baseline(again, whole, gates=()).differences == ()
    for fault, (stage, signal) in FAULTS.values():
        broken = run(tmp_path, name, **fault).record()
        assert set(broken.exact) >= WHOLE, broken.notes
        first = compare_to_baseline(broken, whole, gates=()).first_difference
        assert first is not None, fault
        assert first.stage == stage, (name, fault, first)
        assert signal in (None, first.signal)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_loop_has_a_probe_where_nothing_was_compiled_before(tmp_path: Path) -> None:
    """Inductor checks the CPU with programs of its own, once per cache."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    loop = SCRIPTS["plain"].replace("model = Net()", "model = torch.compile(Net())")
    (tmp_path / "own").mkdir()
    write_script(tmp_path / "own", loop)
    whole = watched(tmp_path / "own", PYTHON, "train.py", options=LOOKED_AT, environment=cache)
    assert whole.code == 0, whole.err
    record = whole.record()
    assert set(record.exact) >= WHOLE - {"work"}, (record.notes, record.unmeasured)


def test_optimizers_of_one_model_that_step_in_turn(tmp_path: Path) -> None:
    write_script(tmp_path, GAN_OF_ONE_MODEL.replace("WIDTH", "8"))
    alone = bare(tmp_path, PYTHON, "train.py")
    whole = watched(tmp_path, PYTHON, "train.py", options=LOOKED_AT)
    assert (whole.code, whole.out) == (0, alone.out), whole.err
    record = whole.record()
    assert record.stability.loss_values == losses_of(alone)
    assert set(record.exact) >= WHOLE - {"batches"}, record.notes
    assert all(record.exact["trajectory"]["grad_norms"])
    assert record.exact["frozen"]["changed"] == []
    assert any("backward of their own" in note for note in record.notes)


def test_optimizers_that_step_inside_backward_leave_no_gradient_to_read(tmp_path: Path) -> None:
    write_script(tmp_path, INSIDE_BACKWARD)
    alone = bare(tmp_path, PYTHON, "train.py")
    whole = watched(tmp_path, PYTHON, "train.py", options=LOOKED_AT)
    assert (whole.code, whole.out) == (0, alone.out), whole.err
    record = whole.record()
    assert record.stability.loss_values == losses_of(alone)
    assert set(record.exact) >= WHOLE - {"first_gradient", "clipping"}, record.notes
    assert record.exact["first_update"]["tensors_unchanged"] == []
    assert "first_gradient" not in record.exact
    assert "inside backward" in record.unmeasured["exact.first_gradient"]
    assert set(record.stability.grad_norm_values) == {None}


@pytest.mark.parametrize("name", RANKS)
def test_ranks_of_a_loop_are_recorded(tmp_path: Path, name: str) -> None:
    write_script(tmp_path, RANKS[name])
    alone = bare(tmp_path, *TORCHRUN, "train.py")
    whole = run(tmp_path, name)
    assert (whole.code, whole.out) == (0, alone.out), whole.err
    record = whole.record()
    assert record.ranks["world_size"] == 2
    assert record.ranks["backend"] == "gloo"
    assert set(record.exact) >= WHOLE, record.notes
    assert len(record.exact["batches"][0]) == 2
    again = run(tmp_path, name).record()
    assert compare_to_baseline(again, record, gates=()).differences == ()
