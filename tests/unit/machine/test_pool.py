"""Programs that train take turns on the devices of a machine."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from canary.errors import MachineError
from canary.machine import pool
from canary.machine.gpu import Device, Devices

GPUS = tuple(Device(index, f"GPU-{index}", "Simulated", 1, False, None) for index in range(4))


def test_a_second_training_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    order: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with pool.all_devices(waits.set, tmp_path / "pool"):
            order.append("second")

    with pool.all_devices(lambda: None, tmp_path / "pool"):
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(10)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]


def test_a_child_that_outlives_its_parent_keeps_the_devices(tmp_path: Path) -> None:
    with pool.all_devices(lambda: None, tmp_path / "pool") as file:
        child = subprocess.Popen(["sleep", "60"], pass_fds=[file])
    looking = pool.opened(tmp_path / "pool")
    try:
        assert not pool.lock_byte(looking, pool.usable_bytes()[0])
        child.kill()
        child.wait()
        assert pool.lock_byte(looking, pool.usable_bytes()[0])
    finally:
        os.close(looking)


def test_only_visible_gpus_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "list_devices", lambda: Devices(found=GPUS))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert pool.usable_bytes() == [1, 3]


def test_without_a_visible_gpu_the_cores_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "list_devices", lambda: Devices(found=GPUS))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    mine = sorted(os.sched_getaffinity(0))
    assert pool.usable_bytes() == [pool.FIRST_CORE + core for core in mine]


def test_a_lock_file_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(MachineError, match="cannot write"),
        pool.all_devices(lambda: None, tmp_path / "missing" / "pool"),
    ):
        pass
