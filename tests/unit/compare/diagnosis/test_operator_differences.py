"""What operators differ between two runs: by the profilers' tables, else by the looks' counts."""

from __future__ import annotations

from canary.compare.diagnosis.operators import OperatorUse, operator_differences
from canary.record.profile import LISTED
from canary.record.types import OperatorRow, Profiler, RunRecord
from tests.unit.comparing import example


def row(name: str, cpu: float, count: int, cuda: float = 0.0) -> OperatorRow:
    return OperatorRow(name=name, self_cuda_time_ms=cuda, self_cpu_time_ms=cpu, count=count)


def with_profile(steps: int, rows: list[OperatorRow], kinds: int | None = None) -> RunRecord:
    record = example()
    record.profiler = Profiler(
        steps=list(range(20, 20 + steps)),
        top_cpu_ops=[item for item in rows if item.self_cpu_time_ms],
        top_cuda_ops=[item for item in rows if item.self_cuda_time_ms],
        operator_kinds=len(rows) if kinds is None else kinds,
    )
    return record


def test_times_and_calls_are_those_of_a_step_whatever_the_windows() -> None:
    current = with_profile(2, [row("aten::mm", 40.0, 20), row("aten::add", 10.0, 8)])
    baseline = with_profile(5, [row("aten::mm", 50.0, 50), row("aten::add", 25.0, 20)])
    found = operator_differences(current, baseline)
    assert (found.source, found.clock) == ("profiler", "host")
    (grown,) = found.rows
    assert (grown.name, grown.change) == ("aten::mm", "grown")
    assert grown.baseline == OperatorUse(10.0, 10.0)
    assert grown.current == OperatorUse(10.0, 20.0)
    assert (grown.growth_ms, grown.growth_calls) == (10.0, 0.0)
    assert (found.baseline_total_ms, found.current_total_ms) == (15.0, 25.0)


def test_new_and_gone_operators_are_told_from_grown_ones_and_sorted_by_growth() -> None:
    current = with_profile(
        1, [row("aten::mm", 30.0, 3), row("aten::sort", 9.0, 1), row("aten::add", 5.0, 1)]
    )
    baseline = with_profile(
        1, [row("aten::mm", 10.0, 3), row("aten::exp", 4.0, 2), row("aten::add", 5.1, 1)]
    )
    found = operator_differences(current, baseline)
    assert [(item.name, item.change) for item in found.rows] == [
        ("aten::mm", "grown"),
        ("aten::sort", "new"),
        ("aten::exp", "gone"),
    ]


def test_an_operator_below_a_cut_table_is_not_called_new() -> None:
    current = with_profile(1, [row("aten::mm", 900.0, 3), row("aten::sort", 90.0, 1)])
    listed = [row(f"aten::op{n}", 40.0, 2) for n in range(LISTED - 2)]
    rows = [row("aten::mm", 900.0, 3), row("aten::exp", 40.0, 2), *listed]
    baseline = with_profile(1, rows, kinds=60)
    found = {item.name: item for item in operator_differences(current, baseline).rows}
    assert found["aten::sort"].change == "grown"
    assert found["aten::sort"].baseline is None
    assert found["aten::sort"].growth_calls is None
    assert found["aten::sort"].growth_ms == 50.0, "it took 40 ms at most, or it would be listed"
    assert found["aten::exp"].change == "gone", "the current table is whole"


def test_a_device_on_both_sides_is_compared_by_the_devices_time() -> None:
    current = with_profile(1, [row("aten::mm", 1.0, 3, cuda=20.0)])
    baseline = with_profile(1, [row("aten::mm", 1.0, 3, cuda=10.0)])
    found = operator_differences(current, baseline)
    assert found.clock == "device"
    assert found.rows[0].growth_ms == 10.0


def test_without_profiles_the_looks_counts_are_compared() -> None:
    baseline = example()
    current = example()
    operators = dict(current.exact["work"]["operators"])
    operators["aten.mm.default"] += 7
    operators["aten.sort.default"] = 2
    gone = next(name for name in operators if name.startswith("aten.embedding"))
    del operators[gone]
    current.exact["work"]["operators"] = operators
    found = operator_differences(current, baseline)
    assert (found.source, found.clock) == ("look", None)
    assert found.reason == "the current run was not profiled"
    by_name = {item.name: item for item in found.rows}
    assert by_name["aten.mm.default"].change == "grown"
    assert by_name["aten.mm.default"].growth_calls == 7
    assert by_name["aten.mm.default"].growth_ms is None
    assert by_name["aten.sort.default"].change == "new"
    assert by_name[gone].change == "gone"
    assert len(found.rows) == 3
    assert found.rows[0].name == "aten.mm.default"
