"""A machine that cannot train says what to install, and is never called a regression."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from canary.gate import preflight
from canary.gate.preflight import gpu_problem, no_device, torch_problem
from canary.machine.gpu import Device, Devices

GPU = Device(0, "GPU-x", "Simulated", 80 << 30, False, None)
OLD = Devices((GPU,), "535.183", "12.2")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"available": True, "cuda": "13.0", "torch": "2.13.0"}, ""),
        (
            {"available": False, "cuda": "13.0", "torch": "2.13.0", "error": "too old"},
            "the driver is too old: 535.183 supports CUDA 12.2, this torch needs CUDA 13.0",
        ),
        (
            {"available": False, "cuda": None, "torch": "2.13.0+cpu"},
            "is built without CUDA",
        ),
        (
            {"available": False, "cuda": "12.1", "torch": "2.6", "error": "no permission"},
            "torch cannot use the GPU: no permission",
        ),
        ({"error": "ModuleNotFoundError: No module named 'torch'"}, "No module named 'torch'"),
    ],
)
def test_torchs_answer_becomes_one_sentence_with_a_remedy(
    answer: dict[str, object], said: str
) -> None:
    problem = torch_problem(OLD, answer)
    assert said in problem
    assert bool(problem) == bool(said)


def test_no_gpu_names_driver_toolkit_and_the_way_without() -> None:
    problem = no_device(Devices(reason="no NVIDIA driver answers"))
    for word in ("NVIDIA driver", "NVIDIA Container Toolkit", "gpus: none"):
        assert word in problem


def test_a_python_without_torch_is_asked_and_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(preflight, "list_devices", lambda: OLD)
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n")
    silent.chmod(0o755)
    assert "No module named torch" in gpu_problem(silent)
    assert "torch cannot use the GPU" in gpu_problem(tmp_path / "nothing")


def test_here_the_real_torch_is_asked_where_it_is_a_build_without_cuda() -> None:
    answer = preflight._ask_torch(Path(sys.executable), None)
    assert "torch" in answer
    if answer["cuda"] is None:
        assert "built without CUDA" in torch_problem(OLD, answer)
