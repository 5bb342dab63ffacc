"""Whatever happens, a run ends with a readable record, one line, and the right exit code."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from canary.record.folder import load_record
from canary.record.jsonio import number
from tests.integration.conftest import Finished, canary, run_config, settings, write_config
from tests.planting import plant

pytestmark = pytest.mark.train


def run_planted(folder: Path, body: str, **changes: Any) -> Finished:
    """A run of the embedded SFT with a fault in it."""
    plant(folder, body)
    path = write_config(folder, settings("sft", **({"look_steps": 0} | changes)))
    return canary("run", str(path), "-o", str(folder / "out"), cwd=folder)


def assert_one_line(finished: Finished, code: int, status: str) -> None:
    assert finished.code == code, finished.err
    assert "Traceback" not in finished.err
    last = finished.err.strip().splitlines()[-1]
    assert last.startswith(f"canary: {status}: "), finished.err
    record = finished.record()
    assert record.status == status
    assert record.reason
    assert "\n" not in record.reason
    assert not (finished.folder / ".scratch").exists()


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Finished]]:
    """A run that stands still after two steps, for which its timeout leaves a busy machine enough;
    it takes that while others run."""
    body = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"])
pathlib.Path("child.pid").write_text(str(child.pid))
original = trainer.compute_loss
def compute_loss(*args, **kwargs):
    if trainer.state.global_step == 2:
        time.sleep(300)
    return original(*args, **kwargs)
trainer.compute_loss = compute_loss
"""
    folder = tmp_path_factory.mktemp("stuck")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run_planted, folder, body, timeout=75)


@pytest.mark.usefixtures("stuck")
def test_a_nan_and_all_tokens_are_counted_at_their_steps_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    body = """
import json, pathlib
original, calls = trainer.compute_loss, [0]
def compute_loss(model, inputs, *args, **kwargs):
    labels, mask = inputs["labels"], inputs["attention_mask"]
    with pathlib.Path("seen.jsonl").open("a") as stream:
        print(json.dumps([int(mask.sum()), int((labels != -100).sum())]), file=stream)
    loss = original(model, inputs, *args, **kwargs)
    calls[0] += 1
    return loss * float("nan") if calls[0] == 4 else loss
trainer.compute_loss = compute_loss
"""
    finished = run_planted(
        tmp_path, body, trainer_args={"logging_nan_inf_filter": True, "logging_steps": 1}
    )
    assert finished.code == 0, finished.err
    stability = finished.record().stability
    # Step 2 by the planted micro-batch; the weights are NaN from then on.
    assert stability.nan_at == [2, 3, 4, 5, 6]
    assert stability.nan_steps == 5
    assert math.isfinite(stability.loss_values[0])
    assert math.isnan(stability.loss_values[1])
    rows = finished.rows()
    assert math.isnan(number(rows[1]["micro_losses"][1]))  # type: ignore[index]
    seen = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    pairs = [(seen[at], seen[at + 1]) for at in range(0, len(seen), 2)]
    told = [[row["input_tokens"], row["label_tokens"]] for row in rows]
    assert told == [[a[0] + b[0], a[1] + b[1]] for a, b in pairs]


def test_an_exception_in_user_data_names_itself_and_its_place(tmp_path: Path) -> None:
    body = """
def broken(rows):
    raise KeyError("no field 'answer' in row 7")
trainer.data_collator = broken
"""
    finished = run_planted(tmp_path, body)
    assert_one_line(finished, 4, "failed")
    assert "KeyError" in finished.err
    assert "sitecustomize.py" in finished.err
    assert "Traceback" in finished.log()


def test_out_of_memory_is_a_status_of_its_own(tmp_path: Path) -> None:
    body = """
import torch
original = trainer.compute_loss
def compute_loss(*args, **kwargs):
    if trainer.state.global_step == 2:
        torch.empty(1 << 60, dtype=torch.uint8)
    return original(*args, **kwargs)
trainer.compute_loss = compute_loss
"""
    finished = run_planted(tmp_path, body)
    assert_one_line(finished, 4, "oom")
    assert len(finished.rows()) == 2
    assert "batch_size" in finished.err


def test_a_timeout_ends_the_whole_process_tree(stuck: Future[Finished]) -> None:
    finished = stuck.result()
    assert_one_line(finished, 4, "timeout")
    assert len(finished.rows()) == 2
    started = finished.folder.parent.parent / "child.pid"
    assert not psutil.pid_exists(int(started.read_text()))


def start_long_run(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run that is in the middle of its training."""
    body = """
import time
original = trainer.compute_loss
def compute_loss(*args, **kwargs):
    time.sleep(0.05)
    return original(*args, **kwargs)
trainer.compute_loss = compute_loss
"""
    plant(folder, body)
    path = write_config(
        folder,
        settings("sft", look_steps=0, max_steps=2000, allow_repeat=True),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "canary.cli", "run", str(path), "-o", str(folder / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(folder)},
        # A shell that runs the tests in the background has its children ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for file in folder.glob("out/*/steps.jsonl"):
            if file.read_text().count("\n") >= 3:
                return process, file.parent
        time.sleep(0.1)
    process.kill()
    raise AssertionError(process.communicate())


def training_processes(run_dir: Path) -> list[psutil.Process]:
    """The training processes of a run: each leads a session, and prints to the run's log."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            printed = Path(f"/proc/{process.pid}/fd/1").readlink()
            if printed.is_relative_to(run_dir) and os.getsid(process.pid) == process.pid:
                found.append(process)
    return found


def wait_until_gone(run_dir: Path) -> None:
    deadline = time.monotonic() + 60
    while training_processes(run_dir):
        assert time.monotonic() < deadline, "the training process outlived its parent"
        time.sleep(0.1)


def test_an_interrupt_ends_the_run_with_a_record(tmp_path: Path) -> None:
    process, run_dir = start_long_run(tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 4, err
    assert "Traceback" not in err
    record = load_record(run_dir)
    assert record.status == "interrupted"
    assert len(record.stability.loss_values) >= 3
    assert out.strip() == str(run_dir)
    wait_until_gone(run_dir)


def test_kill_9_of_the_training_process_is_told_by_the_parent(tmp_path: Path) -> None:
    process, run_dir = start_long_run(tmp_path)
    training_processes(run_dir)[0].kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "SIGKILL" in err
    record = load_record(run_dir)
    assert record.status == "failed"
    assert len(record.stability.loss_values) >= 3


def test_kill_9_of_the_parent_ends_the_training_and_is_corrected_on_reading(
    tmp_path: Path,
) -> None:
    process, run_dir = start_long_run(tmp_path)
    process.kill()
    process.communicate()
    wait_until_gone(run_dir)
    rows = (run_dir / "steps.jsonl").read_text().splitlines()
    record = load_record(run_dir)
    assert record.status == "interrupted"
    assert len(record.stability.loss_values) == len(rows)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs root on Linux"
)
def test_a_full_disk_leaves_a_record_that_says_so(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"mount is not allowed here: {mounted.stderr.decode().strip()}")
    body = f"""
original = trainer.compute_loss
def compute_loss(*args, **kwargs):
    if trainer.state.global_step == 2:
        with open({str(small / "filler")!r}, "wb") as filler:
            while True:
                filler.write(bytes(65536))
    return original(*args, **kwargs)
trainer.compute_loss = compute_loss
"""
    plant(tmp_path, body)
    try:
        path = write_config(tmp_path, settings("sft", look_steps=0))
        finished = canary("run", str(path), "-o", str(small), cwd=tmp_path)
        assert finished.code == 4, finished.err
        assert "Traceback" not in finished.err
        assert "no space left" in finished.err.lower()
        assert load_record(finished.folder).status == "failed"
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset_name": "mixed.jsonl"}, "mixed.jsonl"),
        ({"dataset_name": "numbers.jsonl"}, "'completion' of usable row 1 is 1, a int"),
        ({"trainer_args": {"max_grad_norm": "abc"}}, "trainer_args.max_grad_norm is 'abc'"),
        ({"report_to": ["tensorbord"]}, "did you mean 'tensorboard'?"),
    ],
)
def test_a_users_input_error_is_one_line_and_exit_code_2(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    (tmp_path / "mixed.jsonl").write_text(
        '{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": 1}\n' * 30
    )
    (tmp_path / "numbers.jsonl").write_text('{"prompt": "a", "completion": 1}\n' * 30)
    path = write_config(tmp_path, settings("sft", **changes))
    finished = canary("run", str(path), "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert_one_line(finished, 2, "failed")
    assert message in finished.err


def test_an_unwritable_place_is_an_error_before_any_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finished = run_config(tmp_path / "a", settings("sft"), "-o", str(tmp_path / "file"))
    assert finished.code == 4
    assert "cannot write" in finished.err
    assert "Traceback" not in finished.err


def test_verbose_adds_a_traceback_and_keeps_the_exit_code(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"max_stps": 3})
    plain, verbose = canary("run", str(path)), canary("run", "-v", str(path))
    assert (plain.code, verbose.code) == (2, 2)
    assert "Traceback" not in plain.err
    assert "Traceback" in verbose.err
    assert verbose.err.strip().splitlines()[-1] == plain.err.strip()
