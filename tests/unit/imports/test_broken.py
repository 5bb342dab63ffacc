"""Broken inputs: each gets one clear line, and none passes for a healthy run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.unit.imports.broken_inputs import (
    BROKEN,
    FALSE_ALARMS,
    Run,
    answer_to,
    expectations,
    said,
    wrong_facts,
    wrong_with,
)
from tests.unit.imports.running import run as run

CASES = expectations()["inputs"]
CONTROLS = expectations()["controls"]
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed"
)


def cases(found: list[dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(
            case, id=case["path"], marks=[needs_wandb] if case.get("format") == "wandb" else []
        )
        for case in found
    ]


@pytest.mark.parametrize("case", cases(CASES))
def test_a_broken_input_is_told_or_refused(case: dict[str, Any], run: Run, tmp_path: Path) -> None:
    control = ""
    healthy = next((one for one in CONTROLS if one["format"] == case.get("format")), None)
    if healthy is not None:
        control = answer_to(healthy, run, made(tmp_path / "control")).text
    answer = answer_to(case, run, made(tmp_path / "broken"))
    assert wrong_with(case, answer, control) == []


@pytest.mark.parametrize("case", cases(CONTROLS))
def test_a_healthy_input_raises_no_alarm(case: dict[str, Any], run: Run, tmp_path: Path) -> None:
    answer = answer_to(case, run, made(tmp_path / "healthy"))
    assert answer.code == 0, answer.said
    words = expectations()["words"]
    alarms = [w for group in FALSE_ALARMS for w in words[group] if said(str(w), answer.text)]
    assert alarms == []
    assert wrong_facts(case["facts"], answer) == []


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_there_are_at_least_forty_broken_inputs() -> None:
    assert len(CASES) >= 40
    assert all((BROKEN / case["path"]).exists() for case in CASES)
