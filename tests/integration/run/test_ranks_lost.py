"""A rank that dies or stands still is named, and the run ends with a readable record."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from canary.record.folder import load_record
from tests.integration.conftest import canary, settings, write_config
from tests.integration.exec.user_scripts import Ended, watched
from tests.integration.run.rank_scripts import rank_script
from tests.planting import plant

pytestmark = [pytest.mark.train, pytest.mark.slow]

TIMEOUT_S = 60


@pytest.fixture(scope="module", autouse=True)
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Ended]]:
    """A run whose rank 1 sleeps for good after step 3; it takes its timeout while others run."""
    folder = tmp_path_factory.mktemp("hung")
    command = rank_script(folder, each_step="if done == 3: time.sleep(10_000)")
    (folder / "canary.yaml").write_text(f"timeout: {TIMEOUT_S}\nlook_steps: 0\n")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(watched, folder, *command, options=("--config", "canary.yaml"))


KILLED = """
import os
from transformers import TrainerCallback
class Killed(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if os.environ["RANK"] == "1" and state.global_step == 3:
            os.kill(os.getpid(), 9)
trainer.add_callback(Killed())
"""


def test_a_rank_that_is_killed_in_mid_run_is_named(tmp_path: Path) -> None:
    plant(tmp_path, KILLED)
    path = write_config(tmp_path, settings("sft", dataset_size=64, look_steps=0))
    finished = canary("run", str(path), "--nproc", "2", "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert finished.code == 4, finished.err
    record = finished.record()
    assert record.status == "failed"
    assert record.reason == "rank 1 was killed (SIGKILL) after step 3"
    assert record.ranks["failed_rank"] == 1
    assert len(record.stability.loss_values) == 3
    last = finished.err.strip().splitlines()[-1]
    assert last.startswith("canary: failed: rank 1 was killed (SIGKILL) after step 3")
    assert "Traceback" not in finished.err


def test_a_rank_that_raises_in_a_command_is_named_with_its_own_words(tmp_path: Path) -> None:
    command = rank_script(tmp_path, each_step='if done == 2: raise ValueError("no good")')
    ended = watched(tmp_path, *command)
    assert ended.code == 1
    record = ended.record()
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.startswith("rank 1 failed after step 2: ValueError: no good (at ")
    assert record.ranks["failed_rank"] == 1


def test_a_rank_that_stands_still_is_named_with_its_line_and_nothing_of_it_is_left(
    hung: Future[Ended],
) -> None:
    ended = hung.result()
    assert ended.code == 4
    assert ended.folder is not None
    record = load_record(ended.folder)
    assert record.status == "timeout"
    assert record.reason is not None
    assert "rank 0 is at " in record.reason
    assert re.search(r"; rank 1 is at \S+/train.py:\d+ in at_each_step$", record.reason)
    assert len(record.stability.loss_values) == 3
    assert record.duration_seconds < TIMEOUT_S + 30
    folder = str(ended.folder.parent.parent)
    left = [p.pid for p in psutil.process_iter() if _in(p, folder)]
    assert not left


def _in(process: psutil.Process, folder: str) -> bool:
    try:
        return process.pid != os.getpid() and process.cwd() == folder
    except psutil.Error:
        return False
