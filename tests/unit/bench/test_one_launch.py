"""What the benchmark of one launch runs, in which order, and what it calls equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import one_launch
from bench.one_launch import Ended, arm_of, executions


def ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights_under_exec: bytes
) -> tuple[int, list[str]]:
    """The exit code of two rounds of one script, and the arms in their order."""
    arms: list[str] = []

    def ended(words: Sequence[str], folder: Path) -> Ended:
        arms.append(folder.name.rpartition("-")[2])
        saved = weights_under_exec if arms[-1] == "exec" else b"weights"
        return Ended(1.0, 1.0 + 0.1 * len(arms), "loss 1.0", {"model.pt": saved})

    monkeypatch.setattr(one_launch, "ended", ended)
    return executions(2, ["ppo_cartpole"], tmp_path), arms


def test_arms_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, arms = ran(monkeypatch, tmp_path, b"weights")
    assert code == 0
    assert arms == ["bare", "exec", "profiler", "exec", "profiler", "bare"]


def test_other_weights_under_exec_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = ran(monkeypatch, tmp_path, b"others")
    assert code == 1
    assert "NO" in capsys.readouterr().out


@pytest.mark.parametrize("name", one_launch.NAMES)
def test_each_arm_runs_the_same_script(name: str) -> None:
    bare = arm_of("bare", name)
    assert arm_of("exec", name)[-len(bare) :] == bare
    assert arm_of("profiler", name)[-len(bare) + 1 :] == bare[1:]
    assert all(Path(word).exists() for word in bare)
