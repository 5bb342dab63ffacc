"""The profiler end to end: a window of the timed steps, whoever trains."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from canary.record.jsonio import read_rows
from canary.record.profile import read_profile
from canary.record.types import RunRecord
from tests.integration.conftest import Finished, run_config, settings
from tests.unit.recording import Recording

pytestmark = pytest.mark.train

NO_GPU = "the steps ran on the CPU"


def flagged(rows: list[Any]) -> list[int]:
    return [row["step"] for row in rows if row.get("profiled")]


def traced(run: Path, record: RunRecord) -> list[Any]:
    """The events of the trace, which loads as strict JSON."""
    assert record.profiler.trace_path is not None
    document = json.loads((run / record.profiler.trace_path).read_text())
    events = document["traceEvents"]
    assert isinstance(events, list)
    return events


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    values = settings(
        "sft",
        max_steps=8,
        dataset_size=40,
        profiler={"enabled": True, "start_step": 4, "num_steps": 2},
    )
    return run_config(tmp_path_factory.mktemp("profiled"), values)


def test_only_the_window_is_profiled_and_what_it_slowed_is_not_timed(sft: Finished) -> None:
    assert sft.code == 0, sft.err
    record = sft.record()
    assert record.profiler.steps == [4, 5]
    assert "profiler" not in record.unmeasured
    rows: list[Any] = sft.rows()
    assert flagged(rows) == [4, 5, 6], "and the step after it"
    plain = [row["wall_s"] for row in rows if row["step"] > 6 and not row.get("profiled")]
    assert record.perf.step_time.count == len(plain) == 2
    assert record.perf.step_time.max == max(plain)
    assert len(record.stability.loss_values) == 8
    # Writing the trace took many times a step, all of it within the last profiled one.
    wall = {row["step"]: row["wall_s"] for row in rows}
    assert wall[5] > 3 * statistics.median(plain)
    assert record.profiler.wall_ms is not None
    assert record.profiler.wall_ms < 1000 * (wall[4] + wall[5])
    assert "  profile     steps 4 to 5, not timed" in sft.err


def test_the_trace_opens_and_the_operators_are_those_that_the_look_counted(sft: Finished) -> None:
    record = sft.record()
    names = [event.get("name") for event in traced(sft.folder, record) if event["ph"] == "X"]
    counted = record.exact["work"]["operators"]
    document = read_profile(sft.folder / "profiler")
    assert document is not None
    table = {row["name"]: row for row in document["operators"]}
    for name in ("mm", "mul", "div", "sqrt"):
        in_a_step = sum(
            count for key, count in counted.items() if key.split(".")[:2] == ["aten", name]
        )
        assert in_a_step > 0, name
        assert table[f"aten::{name}"]["count"] == 2 * in_a_step, name
        # The table drops calls that only pass on to another of the same name; the trace has them.
        assert names.count(f"aten::{name}") >= 2 * in_a_step, name
    profiler = record.profiler
    assert profiler.operators_path == "profiler/operators.json"
    assert profiler.cpu_time_total_ms is not None
    assert profiler.wall_ms is not None
    assert 0 < profiler.cpu_time_total_ms < profiler.wall_ms, "one thread"
    on_host = [row for row in table.values() if row["kind"] == "operator"]
    total = sum(row["self_cpu_time_ms"] for row in on_host)
    assert profiler.cpu_time_total_ms == pytest.approx(total)
    assert profiler.operator_kinds == len(on_host)
    longest = max(on_host, key=lambda row: row["self_cpu_time_ms"])
    assert profiler.top_cpu_ops[0].name == longest["name"]
    assert profiler.cuda_time_total_ms == profiler.self_cuda_time_total_ms == 0.0
    assert record.unmeasured["profiler.cuda_time_total_ms"] == NO_GPU


def loop(folder: Path, steps: int, at: Callable[[int], None]) -> Recording:
    """A recorded loop, profiled in steps 4 and 5; `at` is called within each step."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Recording(folder, 2, profiled=(4, 2))
    with made.of(model=model, optimizer=optimizer) as recorder:
        for number in range(1, steps + 1):
            with recorder.step({"x": torch.ones(2, 8)}) as step:
                at(number)
                loss = model(torch.ones(2, 8)).pow(2).mean()
                step.loss(loss)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    return made


def test_the_recorder_profiles_a_loop_of_ones_own(tmp_path: Path) -> None:
    def at(number: int) -> None:
        if number == 4:
            torch.sort(torch.rand(64))

    made = loop(tmp_path, 8, at)
    record, run = made.record(), made.run.path
    assert record.status == "completed"
    assert record.profiler.steps == [4, 5]
    assert flagged(list(read_rows(run / "steps.jsonl"))) == [4, 5, 6]
    assert record.perf.step_time.count == 2, "two of the look, one of warm-up, three flagged"
    calls = {row.name: row.count for row in record.profiler.top_cpu_ops}
    assert calls["aten::addmm"] == 2
    assert calls["aten::sort"] == 1
    assert len(traced(run, record)) > 10


def test_a_profiler_of_the_users_own_is_left_alone_and_named(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as own:
        made = loop(tmp_path, 6, lambda _: None)
    calls = {row.key: row.count for row in own.key_averages()}
    assert calls["aten::addmm"] == 7, "the look asks the model once more"
    record, run = made.record(), made.run.path
    assert record.status == "completed"
    assert record.unmeasured["profiler"] == "another profiler was already running in the training"
    assert not flagged(list(read_rows(run / "steps.jsonl")))
