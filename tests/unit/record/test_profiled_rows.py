"""Steps that the profiler slowed down: in the record's stability, out of its speeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from canary.config.schema import ProfilerConfig
from canary.errors import MachineError
from canary.record.profile import OPERATORS, SCHEMA_VERSION, Window
from canary.record.profile_folder import keep_profile, window_of
from canary.record.summary import summarise
from tests.unit.record.test_summary import record, row

MB = 2**20
DEFAULTS = ProfilerConfig(enabled=True).model_dump()


def with_window(first: int, last: int, steps: int = 60, **changes: Any) -> list[Any]:
    """A second a step, ten in the flagged ones."""
    return [
        row(step, 10.0, profiled=True, **changes)
        if first <= step <= last
        else row(step, 1.0, **changes)
        for step in range(1, steps + 1)
    ]


def test_profiled_steps_leave_every_speed_and_stay_in_the_stability() -> None:
    rows = with_window(5, 8, steps=12)
    rows[5]["loss"], rows[5]["micro_losses"] = math.nan, []
    rows[6]["rl"] = {"kl": 3.0}
    found = summarise(record(), rows, warmup=2)
    assert found.perf.step_time.count == 6
    assert found.perf.step_time.max == 1.0
    assert found.perf.approx_tokens_per_sec == 100.0
    assert sum(found.phases.values()) == pytest.approx(1.0)
    assert found.launches[0].mean_step_time_s == 1.0
    assert found.launches[0].steps == 12
    assert found.stability.nan_at == [6]
    assert len(found.stability.loss_values) == 12
    assert found.tokens["input_tokens"] == 1200, "tokens are counted, not timed"
    assert found.rl["kl"].count == 1, "what is learned is no speed"


def test_memory_that_the_profiler_left_behind_is_no_growth() -> None:
    rows = with_window(20, 24)
    for each in rows:
        each["rss_bytes"] = (300 if each["step"] < 24 else 360) * MB
    growth = summarise(record(), rows, warmup=0).memory.growth
    assert growth is not None
    assert growth.steps == 36, "the longer side of the window"
    assert growth.bytes_per_step == 0.0
    for each in rows:
        each.pop("profiled", None)
    stepped = summarise(record(), rows, warmup=0).memory.growth
    assert stepped is not None
    assert stepped.bytes_per_step > MB


def window(folder: Path, **changes: Any) -> Window:
    found = window_of({**DEFAULTS, **changes}, folder)
    assert found is not None
    return found


def test_the_trace_lies_in_the_run_or_where_it_is_wanted(tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    assert window_of({**DEFAULTS, "enabled": False}, run) is None
    assert window(run).trace == str(run / "profiler" / "trace.json")
    traces = tmp_path / "traces"
    given = window(run, output_dir=str(traces))
    assert given.trace == str(traces / "trace.json")
    assert given.folder == str(run / "profiler"), "the operators belong to the run"
    (traces / "trace.json").write_text("{}")
    again = window(tmp_path / "run-2", output_dir=str(traces))
    assert again.trace == str(traces / "run-2" / "trace.json"), "no run overwrites another's"


def test_a_folder_for_traces_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"cannot write .*file/traces.*profiler\.output_dir"):
        window(tmp_path / "run", output_dir=str(tmp_path / "file" / "traces"))


def left(folder: Path, document: dict[str, Any]) -> None:
    from canary.record import jsonio

    document = {"schema_version": SCHEMA_VERSION, **document}
    (folder / "profiler" / OPERATORS).write_text(jsonio.dumps(document))


def test_what_the_child_left_is_in_the_record_with_paths_that_move_along(tmp_path: Path) -> None:
    kept = record()
    kept.unmeasured["profiler"] = "profiling was off"
    given = window(tmp_path, start_step=3, num_steps=2)
    Path(given.trace).write_text("{}")
    left(
        tmp_path,
        {"summary": {"steps": [3, 4]}, "unmeasured": {"profiler.top_cuda_ops": "no GPU"}},
    )
    keep_profile(kept, tmp_path, given, 8)
    assert kept.profiler.steps == [3, 4]
    assert kept.profiler.trace_path == "profiler/trace.json"
    assert kept.profiler.operators_path == "profiler/operators.json"
    assert kept.unmeasured == {"profiler.top_cuda_ops": "no GPU"}
    assert kept.notes == []


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        (1, 12, "steps 20 to 24 not profiled: training ended after step 12"),
        (1, 22, "steps 20 to 24 not profiled: the profiler wrote nothing; see log.txt"),
        (
            101,
            140,
            "steps 20 to 24 not profiled: training resumed from a checkpoint with step 100",
        ),
    ],
)
def test_a_profile_that_is_not_there_has_a_reason(
    tmp_path: Path, first: int | None, last: int | None, reason: str
) -> None:
    kept = record()
    kept.unmeasured["profiler"] = "profiling was off"
    keep_profile(kept, tmp_path, window(tmp_path), last, first)
    assert kept.unmeasured["profiler"] == reason
    assert kept.profiler.steps == []
