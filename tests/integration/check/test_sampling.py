"""`canary check` on online RL whose engine is another process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.check.test_check import checked
from tests.integration.exec.user_scripts import PYTHON

LOOP = Path(__file__).parent / "engine_loop.py"
ASKED = ("sampler_logprobs", "sampler_weights", "reward_function")
ONLY = [word for name in ASKED for word in ("--only", name)]


def broken(found: dict[str, Any]) -> set[str]:
    return {name for name, one in found.items() if one["status"] == "broken"}


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "expected", "words"),
    [
        ("whole", set(), ""),
        ("stale", {"sampler_logprobs", "sampler_weights"}, "the engine is 1 update behind"),
        ("dtype", {"sampler_logprobs"}, "the engine holds bfloat16"),
        ("template", {"sampler_logprobs"}, "the sampler's prompt has 6 tokens and the trainer's 4"),
    ],
)
def test_an_engine_in_another_process(
    tmp_path: Path, fault: str, expected: set[str], words: str
) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP.read_text())
    code, found = checked(tmp_path, *ONLY, "-o", "here", "--", PYTHON, "loop.py", fault)
    assert broken(found) == expected, found
    assert code == (1 if expected else 0)
    assert words in " ".join(one["message"] for one in found.values())
    if fault in ("whole", "dtype"):
        assert found["sampler_weights"]["status"] == "holds"
    if fault == "whole":
        assert {one["status"] for one in found.values()} == {"holds"}
        _same_losses(tmp_path)


def _same_losses(folder: Path) -> None:
    """The questions leave the training as it is, bit for bit."""
    alone = subprocess.run(
        [PYTHON, "loop.py", "whole"], cwd=folder, capture_output=True, text=True, check=True
    )
    losses = [line for line in alone.stdout.splitlines() if line.startswith("loss")]
    (log,) = (folder / "here").rglob("log.txt")
    asked = [line for line in log.read_text().splitlines() if line.startswith("loss")]
    assert len(losses) == 4
    assert asked == losses
