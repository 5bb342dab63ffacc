"""How a plain torch loop under `canary exec` ends, and which of several trainings is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import PYTHON, bare, sft_script, watched, write_data
from tests.integration.loops.torch_scripts import HELPED, PLAIN, write_script

pytestmark = [pytest.mark.train, pytest.mark.slow]

LOOKED_AT = ("--name", "own", "--set", "look_steps=3")
ENDLESS = """
from itertools import count
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
batches = [*loader()]
for step in count():
    ids, targets = batches[step % len(batches)]
    _, loss = model(ids, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, flush=True)
    BODY
print("after the loop")
"""
SPAWNED = """
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
def train(rank, world):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29617"}
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step, (ids, targets) in enumerate(loader()):
        if step == STEPS:
            break
        _, loss = model(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
"""
WITHOUT_PACKAGES = """
import sys
sys.modules.update(dict.fromkeys(
    ("pydantic", "yaml", "rich", "typer", "jinja2", "scipy", "psutil", "transformers", "trl",
     "datasets", "peft", "accelerate")
))
"""


def endless(body: str = "pass") -> str:
    return ENDLESS.replace("BODY", body)


def test_a_loop_that_never_stops_is_ended_after_the_last_recorded_step(tmp_path: Path) -> None:
    write_script(tmp_path, endless())
    options = ("--name", "own", "--max-steps", "9", "--set", "look_steps=3")
    done = watched(tmp_path, PYTHON, "train.py", options=options)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [f"step {step}" for step in range(9)]
    assert "canary: ended after step 9; what comes after the loop does not run" in done.err
    record = done.record()
    assert (record.status, len(record.stability.loss_values)) == ("completed", 9)
    assert len(record.exact["batches"]) == 3
    assert "the canary ended the process after step 9" in record.notes


def test_a_loop_may_leave_the_process_as_it_likes(tmp_path: Path) -> None:
    write_script(tmp_path, endless("if step == 3: os._exit(0)"))
    done = watched(tmp_path, PYTHON, "train.py")
    assert done.code == 0, done.err
    record = done.record()
    assert (record.status, len(record.stability.loss_values)) == ("completed", 4)


def test_a_trainer_and_a_recorder_come_before_a_loop(tmp_path: Path) -> None:
    write_data(tmp_path)
    helper = HELPED[: HELPED.index("model = Net()")]
    sft_script(tmp_path, "sft.py", steps=9, before="import torch\nfrom torch import nn\n" + helper)
    done = watched(tmp_path, PYTHON, "sft.py", options=LOOKED_AT)
    assert done.code == 0, done.err
    record = done.record()
    assert record.config["training_type"] == "sft"
    assert (len(record.stability.loss_values), len(record.exact["batches"])) == (9, 3)
    assert any("an earlier loop is not recorded (3 steps of SGD" in note for note in record.notes)

    recorded = (
        "from canary import Recorder\nwith Recorder('mine') as recorder:\n"
        "    for step in range(5):\n        with recorder.step([step]) as now:\n"
        "            now.loss(float(step))\n"
    )
    write_script(tmp_path, helper + recorded)
    done = watched(tmp_path, PYTHON, "train.py", options=LOOKED_AT)
    assert done.record().stability.loss_values == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(done.record().exact["batches"]) == 3


def test_ranks_that_the_script_spawns_are_recorded(tmp_path: Path) -> None:
    write_script(tmp_path, SPAWNED)
    done = watched(tmp_path, PYTHON, "train.py", options=LOOKED_AT)
    assert done.code == 0, done.err
    record = done.record()
    assert record.ranks["world_size"] == 2
    assert len(record.stability.loss_values) == 6
    assert "first_update" in record.exact, record.notes


def test_a_python_with_torch_and_nothing_else_is_watched(tmp_path: Path) -> None:
    write_script(tmp_path, WITHOUT_PACKAGES + PLAIN)
    done = watched(tmp_path, PYTHON, "train.py", options=LOOKED_AT)
    assert done.code == 0, done.err
    record = done.record()
    assert len(record.stability.loss_values) == 6
    assert "first_update" in record.exact, record.notes


def test_a_process_without_an_optimizer_loads_only_what_notes_lines(tmp_path: Path) -> None:
    code = "import torch, sys; print(*sorted(m for m in sys.modules if m.startswith('canary')))"
    loaded = watched(tmp_path, PYTHON, "-c", code).out.split()
    assert loaded == ["canary.training.collectors.ran", "canary.training.collectors.taps"]
    assert bare(tmp_path, PYTHON, "-c", code).out == "\n"
