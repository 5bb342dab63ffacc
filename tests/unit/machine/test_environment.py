"""Facts of the machine, with a driver played by a fake where there is none."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from canary.errors import MachineError
from canary.machine import gpu
from canary.machine.environment import environment_lines, fingerprint, git_state, image_name
from canary.machine.sampler import BackgroundSampler


def devices(*uuids: str) -> list[gpu.Device]:
    return [
        gpu.Device(index=i, uuid=uuid, name="GPU", memory_bytes=1, mig=False, handle=None)
        for i, uuid in enumerate(uuids)
    ]


def test_the_fingerprint_is_json_and_holds_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    found = fingerprint()
    text = json.dumps(found)
    assert found["packages"]["trl"]
    assert found["packages"]["deepspeed"] is None
    assert found["variables"]["OMP_NUM_THREADS"] == "3"
    assert "secret-token" not in text
    assert found["gpus"] or found["gpu_reason"]
    names = [name for name, _ in environment_lines(found)]
    assert {"python", "cpu", "torch", "trl"} <= set(names)


def test_git_state_inside_and_outside_a_repository(tmp_path: Path) -> None:
    assert git_state(tmp_path)["sha"] is None
    assert git_state(tmp_path)["reason"]
    for command in (
        ["init", "-q", "-b", "main"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = git_state(tmp_path)
    assert len(clean["sha"] or "") == 40
    assert (clean["branch"], clean["dirty"]) == ("main", False)
    (tmp_path / "new").touch()
    assert git_state(tmp_path)["changed_files"] == 1


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-bb", [1]),
        ("1,9,0", [1]),
        ("GPU-", []),
        ("0,0", [0]),
    ],
)
def test_visible_devices_follow_cudas_own_rules(variable: str | None, expected: list[int]) -> None:
    found = gpu.visible(devices("GPU-aa", "GPU-bb", "GPU-cc"), variable)
    assert [device.index for device in found] == expected


def test_the_device_in_use_is_the_one_torch_would_take() -> None:
    three = devices("GPU-aa", "GPU-bb", "GPU-cc")
    second = gpu.device_in_use("cuda:1", three, "2,0")
    assert second is not None
    assert second.index == 0
    assert gpu.device_in_use("cpu", three, None) is None
    assert gpu.device_in_use("auto", [], None) is None
    with pytest.raises(MachineError, match="0 GPUs are visible"):
        gpu.device_in_use("cuda", [], None)


def test_no_driver_is_a_reason_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    found = gpu.list_devices()
    assert found.found == ()
    assert "no NVIDIA driver" in (found.reason or "")


def _hold(folder: str, ready: Any, release: Any) -> None:
    with gpu.device_lock("GPU-aa", Path(folder), 0):
        ready.set()
        release.wait(120)


def test_a_second_canary_waits_for_the_device_or_says_who_holds_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path), ready, release))
    holder.start()
    assert ready.wait(120)
    with (
        pytest.raises(MachineError, match=f"process {holder.pid}"),
        gpu.device_lock("GPU-aa", tmp_path, 0.1),
    ):
        pass
    with gpu.device_lock("GPU-bb", tmp_path, 0):
        pass
    threading.Timer(0.3, release.set).start()
    with gpu.device_lock("GPU-aa", tmp_path, 30):
        assert (tmp_path / "gpu-GPU-aa.lock").read_text() == str(os.getpid())
    holder.join()


BURNS = "print(flush=True)\ninput()\nwhile True: pass"
"""Waits for a line, having said that it does; then it computes."""
PATIENCE_S = 120.0
"""However busy the machine is."""


@contextmanager
def burner(*around: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs BURNS, or one that starts it as a child, ready for its line."""
    command = [sys.executable, "-S", "-c", *around, BURNS]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, bufsize=1, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(come: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not come():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def let_burn(process: subprocess.Popen[str], burning: psutil.Process, seconds: float) -> None:
    """Until it has used so much of a core, which takes a busy machine longer."""
    assert process.stdin is not None
    process.stdin.write("\n")
    until(lambda: burning.cpu_times().user > seconds)


def test_the_sampler_sees_what_a_child_of_its_process_computes() -> None:
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', sys.argv[1]])"
    with burner(parent) as process:
        (child,) = psutil.Process(process.pid).children()
        sampler = BackgroundSampler(process.pid, None, interval_s=0.1)
        sampler.start()
        until(lambda: "cpu_percent" in sampler.latest)
        began, used = time.monotonic(), child.cpu_times().user
        let_burn(process, child, used + 0.5)
        share = 100 * (child.cpu_times().user - used) / (time.monotonic() - began)
        sampler.stop()
    found = sampler.figures()
    assert share / 4 < found["cpu_percent"]["mean"] < 4 * share
    assert found["cpu_percent"]["max"] > share / 2
    assert found["rss_bytes"]["max"] > 2**20
    assert found["cpu_percent"]["samples"] >= 3
    assert "gpu_utilization" not in found


def test_a_launch_shorter_than_the_interval_has_its_samples() -> None:
    with burner() as process:
        sampler = BackgroundSampler(process.pid, interval_s=2.0)
        began = time.monotonic()
        sampler.start()
        until(lambda: "cpu_percent" in sampler.latest)
        took = time.monotonic() - began
        sampler.stop()
    assert took < 1.9
    assert set(sampler.figures()) == {"cpu_percent", "machine_cpu_percent", "rss_bytes"}


def test_the_sampler_outlives_its_process_and_reads_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = SimpleNamespace(gpu=50, memory=20)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: rates)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _: SimpleNamespace(used=7))
    gone = subprocess.Popen(["true"])
    gone.wait()
    sampler = BackgroundSampler(gone.pid, devices("GPU-aa")[0], interval_s=0.05)
    sampler.start()
    until(lambda: "gpu_utilization" in sampler.latest)
    sampler.stop()
    found = sampler.figures()
    assert found["gpu_utilization"]["mean"] == 50
    assert found["gpu_memory_utilization"]["mean"] == 20


def test_percentages_are_of_the_time_in_which_steps_were_trained() -> None:
    with burner() as process:
        sampler = BackgroundSampler(process.pid, None, interval_s=0.05)
        sampler.start()
        until(lambda: "cpu_percent" in sampler.latest)
        later = time.time()
        let_burn(process, psutil.Process(process.pid), 0.5)
        sampler.stop()
    whole, trained = sampler.figures(), sampler.figures((later, time.time()))
    assert sampler.figures((0.0, later))["cpu_percent"]["mean"] < 5
    assert trained["cpu_percent"]["mean"] > whole["cpu_percent"]["mean"]
    assert trained["cpu_percent"]["samples"] < whole["cpu_percent"]["samples"]
    assert trained["rss_bytes"]["samples"] == whole["rss_bytes"]["samples"]
    nothing_inside = sampler.figures((0.0, 1.0))
    assert nothing_inside == whole


def test_the_image_is_the_actions_or_githubs() -> None:
    github = {"ImageOS": "ubuntu24", "ImageVersion": "20261101.1.0"}
    named = "ghcr.io/org/canary@sha256:" + "a" * 64
    assert image_name({}) is None
    assert image_name(github) == "ubuntu24 20261101.1.0"
    assert image_name({**github, "CANARY_IMAGE": named}) == named
    assert image_name({"CANARY_IMAGE": "x\x1b[2J"}) is None
    assert image_name({"CANARY_IMAGE": "x" * 400}) is None
