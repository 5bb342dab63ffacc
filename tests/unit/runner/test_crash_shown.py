"""What is told of a run that crashed: how far it came and why, and nothing that it cannot know."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.protocol.failure import describe_failure
from canary.record.types import RunRecord
from canary.report.render import render
from tests.unit.comparing import altered, crashed, record, records

BASELINE = records([0.1] * 3)


def ended(number: int, steps: int, status: str = "failed") -> RunRecord:
    """A run that ended after so many steps, all of them warm-up."""
    run = crashed(record(number), status, "ValueError: no good (at train.py:12)")
    for part in ("mean", "median", "p95"):
        run = altered(run, "perf", "step_time", part, to=math.nan)
    run = altered(run, "perf", "approx_tokens_per_sec", to=None)
    run = altered(run, "stability", "loss_values", to=run.stability.loss_values[:steps])
    run.stability.final_loss = run.stability.loss_values[-1] if steps else None
    run.launches[-1] = run.launches[-1].model_copy(update={"status": status, "steps": steps})
    return run


def once() -> Comparison:
    return compare_to_baseline(ended(100, 3), BASELINE)


def twice() -> Comparison:
    return compare_to_baseline([ended(100, 3), ended(101, 3)], BASELINE)


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
@pytest.mark.parametrize("make", [once, twice])
def test_a_crash_shows_no_number_that_is_none(make: object, form: str) -> None:
    found: Comparison = make()  # type: ignore[operator]
    assert "ValueError: no good" in found.first_line
    assert "ValueError: no good, after step 3" in render(found, form)
    assert not re.search(r"\bnan\b(?! steps)", render(found, form), re.IGNORECASE)


def after_training(number: int, how: str = "after training: no such metric") -> RunRecord:
    """A command that trained 12 steps and failed at its end."""
    run = crashed(record(number), "failed", how)
    trained = run.launches[0].model_copy(update={"status": "failed", "steps": 12})
    return run.model_copy(update={"launches": [trained]})


def test_a_crash_after_the_training_is_told_by_its_steps() -> None:
    found = compare_to_baseline(after_training(100), BASELINE)
    assert "after step 12" in found.first_line


def test_what_the_look_of_a_crash_saw_is_shown() -> None:
    other = after_training(100)
    other.exact["model"]["trainable_parameters"] += 8
    found = compare_to_baseline(other, BASELINE)
    assert found.verdict == "error"
    assert found.first_difference is not None
    assert found.first_difference.signal == "trainable_parameters"
    assert "trainable parameters 403104 -> 403112" in render(found, "text")


def test_a_crash_before_the_first_step_says_so() -> None:
    found = compare_to_baseline([ended(100, 0, "oom"), ended(101, 0, "oom")], BASELINE)
    assert "before its first step" in render(found, "text")
    nothing = crashed(record(100)).model_copy(update={"launches": []})
    nothing = altered(nothing, "stability", "loss_values", to=[])
    assert "before its first step" in compare_to_baseline(nothing, BASELINE).first_line


def test_the_place_of_a_failure_is_told_without_the_folders_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "canary-ab-x1y2" / "head" / "src" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text("raise ValueError('no good')\n")
    monkeypatch.chdir(script.parents[1])
    assert _reason(script) == "ValueError: no good (at src/train.py:1)"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(str(script.parent))
    assert _reason(script) == "ValueError: no good (at train.py:1)"


def _reason(script: Path) -> str:
    try:
        exec(compile(script.read_text(), str(script), "exec"), {})
    except ValueError as error:
        return describe_failure(error).reason or ""
    return ""
