"""A machine that cannot train says what to install, and is never called a regression."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from canary.gate.workspace import gpu_problem

TOO_OLD = "UserWarning: The NVIDIA driver on your system is too old (found version 12020)."


def python(folder: Path, answer: str, said: str = "") -> Path:
    """A Python whose torch answers so."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\necho '{said}' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("answer", "said", "problem"),
    [
        ([True, "13.0", "2.13.0"], "", ""),
        ([False, "13.0", "2.13.0"], TOO_OLD, "driver on your system is too old"),
        ([False, "13.0", "2.13.0"], "", "NVIDIA Container Toolkit on the runner, or set `gpus: no"),
        ([False, None, "2.13.0+cpu"], "", "torch 2.13.0+cpu is built without CUDA"),
    ],
)
def test_torchs_answer_becomes_one_sentence_with_a_remedy(
    tmp_path: Path, answer: list[object], said: str, problem: str
) -> None:
    found = gpu_problem(python(tmp_path, json.dumps(answer), said), {"PATH": "/usr/bin:/bin"})
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_python_without_torch_is_asked_and_answers(tmp_path: Path) -> None:
    silent = python(tmp_path, "", "ModuleNotFoundError: No module named torch")
    assert "No module named torch" in gpu_problem(silent, {})
    assert "torch cannot use the GPU" in gpu_problem(tmp_path / "nothing", {})


def test_here_the_real_torch_is_asked_where_it_is_a_build_without_cuda() -> None:
    import torch

    if torch.version.cuda is None:
        assert "built without CUDA" in gpu_problem(Path(sys.executable), {})
