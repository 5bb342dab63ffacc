"""Drawers and records in: what is followed, what is read, what is refused."""

from __future__ import annotations

import importlib.util
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canary.baseline.entry import Context
from canary.baseline.history import NOISE_FILE, drawers, save
from canary.compare.timing.noise import MetricNoise, NoiseModel, save_noise
from canary.errors import InputError, MachineError, RecordError
from canary.record.curves import Curve
from canary.record.types import RunRecord
from canary.trends.history import trends_in, trends_of
from canary.trends.model import HistoryTrends, Series
from tests.unit.comparing import altered, committed, on_gpu, record
from tests.unit.gating import imported
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.trends.histories import noise, runs_of, stepped, trends_of_runs


def named(found: HistoryTrends, metric: str) -> Series:
    (one,) = (series for series in found.series if series.metric == metric)
    return one


def filled(root: Path, runs: list[RunRecord], red: range = range(0)) -> Path:
    for place, one in enumerate(runs):
        verdict: Any = "regression" if place in red else "pass"
        save(root, one, context=Context(commit=f"{place + 1:040x}", verdict=verdict))
    (folder,) = drawers(root)
    return folder


def test_a_drawer_and_its_records_say_the_same(tmp_path: Path) -> None:
    runs = runs_of(stepped(noise(40, 0), 30, 8))
    folder = filled(tmp_path, runs, red=range(30, 40))
    stored, given = trends_of(folder), trends_of_runs(runs)
    assert (stored.canary, stored.machine) == (folder.parent.name, folder.name)
    assert given.machine == stored.machine
    (change,) = named(stored, "step_time_median").changes
    assert change.place == 30
    assert named(given, "step_time_median").changes == (change,)
    points = named(stored, "step_time_median").points
    assert points[30].commit == f"{31:040x}"
    assert (points[29].period, points[30].period) == (1, None)
    assert points[30].verdict == "regression"


def test_a_thousand_runs_take_less_than_two_seconds() -> None:
    """The analysis of all metrics, the records already in memory."""
    runs = runs_of(
        stepped(noise(1000, 0, lasting=0.3, spikes=0.03), 700, 5),
        stepped(noise(1000, 1, sd=0.004), 200, 10),
    )
    trends_of_runs(runs[:10])
    start = time.process_time()
    found = trends_of_runs(runs)
    assert time.process_time() - start < 2
    assert [one.place for one in named(found, "step_time_median").changes] == [700]
    assert [one.place for one in named(found, "max_memory").changes] == [200]


def test_all_metrics_of_a_record_are_followed() -> None:
    runs = [record(n, 0.1, cpu_s=0.08) for n in range(8)]
    found = trends_of_runs(runs)
    titles = {series.metric: (series.title, series.unit) for series in found.series}
    assert titles == {
        "step_time_median": ("step time", "ms"),
        "cpu_time": ("CPU time per step", "ms"),
        "max_memory": ("peak memory", "MB"),
        "tokens_per_sec": ("tokens per second", "tokens/s"),
        "final_loss": ("final loss", ""),
        "grad_norm": ("gradient norm", ""),
    }
    assert named(found, "tokens_per_sec").lower_is_better is False
    assert named(found, "grad_norm").lower_is_better is None


def gated(number: int, value: float, gates: list[dict[str, Any]]) -> RunRecord:
    whole = record(number, 0.1)
    whole = whole.model_copy(update={"config": {**whole.config, "metrics": gates}})
    curve = Curve(steps=[1, 2, 3, 4], values=[0.0, value, value, value + 2])
    return whole.model_copy(update={"curves": {"reward": curve}})


def test_a_gate_gives_its_own_statistic_and_direction() -> None:
    gate = {"name": "reward", "statistic": "mean", "last": 3, "limit": "history"}
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98, 1.01, 0.99, -4.0, -4.1, -3.9, -4.0]
    found = trends_of_runs([gated(n, value, [gate]) for n, value in enumerate(values)])
    reward = named(found, "reward")
    assert reward.title == "mean reward over the last 3 values"
    assert reward.lower_is_better is False
    assert reward.points[0].value == pytest.approx(1 + 2 / 3)
    (change,) = reward.changes
    assert (change.place, change.worse) == (10, True)
    assert reward.levels[1].center < 0


def test_two_gates_on_a_metric_are_two_series() -> None:
    gates = [
        {"name": "reward", "statistic": "max", "limit": "history"},
        {"name": "reward", "statistic": "min", "limit": "history", "worse": "both"},
    ]
    found = trends_of_runs([gated(n, 1.0, gates) for n in range(8)])
    titles = [one.title for one in found.series if "reward" in one.title]
    assert titles == ["largest reward over all steps", "smallest reward over all steps"]


def test_imported_runs_without_step_times_are_followed() -> None:
    gate = {"name": "reward", "limit": "history"}
    runs = [imported(gated(n, 1.0 + n, [gate]), timed=False) for n in range(8)]
    found = trends_of_runs(runs)
    metrics = {series.metric for series in found.series}
    assert {"reward", "final_loss"} < metrics
    assert "step_time_median" not in metrics


def test_gates_that_cannot_be_read_are_told() -> None:
    runs = [gated(n, 1.0, []) for n in range(7)]
    runs.append(gated(7, 1.0, [{"name": "reward", "limt": 3}]))
    found = trends_of_runs(runs)
    assert "limt" in found.notes[0]


def test_what_is_not_finite_or_missing_is_told() -> None:
    runs = runs_of(noise(12, 0))
    runs[3] = altered(runs[3], "stability", "loss_values", to=[math.nan] * 40)
    runs[4] = altered(runs[4], "stability", "loss_values", to=[])
    loss = named(trends_of_runs(runs), "final_loss")
    assert [loss.points[place].value for place in (3, 4)] == [None, None]
    assert loss.notes == (
        "1 of 12 runs gave no finite number",
        "1 of 12 runs have no such number",
    )


def test_times_of_unequal_generations_are_per_token() -> None:
    runs = []
    for place, value in enumerate(noise(20, 0).tolist()):
        one = record(place, 0.1 * (1 + place % 2) * math.exp(value))
        steps = one.launches[0].steps
        one.tokens["completion_tokens"] = 10 * steps * (1 + place % 2)
        runs.append(one)
    found = named(trends_of_runs(runs), "step_time_median")
    assert found.unit == "ms/token"
    assert found.points[0].value == pytest.approx(10, rel=0.05)
    assert found.points[1].value == pytest.approx(10, rel=0.05)


def test_other_memory_than_the_newest_run_has_is_left_out() -> None:
    runs = runs_of(noise(12, 0))
    runs[:4] = [on_gpu(one) for one in runs[:4]]
    memory = named(trends_of_runs(runs), "max_memory")
    assert [point.value for point in memory.points[:4]] == [None] * 4
    assert "4 of 12 runs have no such number" in memory.notes


def test_the_machine_is_named_where_it_changed() -> None:
    runs = runs_of(stepped(noise(60, 0), 40, 10))
    for place, one in enumerate(runs):
        one.env = {**one.env, "driver": "2" if place >= 38 else "1"}
        one.env["image"] = "new" if place >= 39 else "old"
        if place >= 40:
            one.env["packages"] = {**one.env["packages"], "torch": "9.9", "only-now": "1"}
    found = trends_of_runs(runs)
    (change,) = named(found, "step_time_median").changes
    assert [(one.name, one.before) for one in change.machine] == [("torch", "2.13.0+cpu")]
    assert [place for place, _ in found.machine_changes] == [38, 39, 40]


def test_a_noise_model_widens_and_a_broken_one_is_told(tmp_path: Path) -> None:
    folder = filled(tmp_path, runs_of(stepped(noise(40, 0), 30, 8)))
    assert named(trends_of(folder), "step_time_median").changes
    loud = MetricNoise(run_sd=0.1, run_df=30, pair_sd=None, pair_df=None)
    model = NoiseModel(
        canary="x", machine_key="y", created="", runs=31, metrics={"step_time_median": loud}
    )
    save_noise(model, folder / NOISE_FILE)
    found = trends_of(folder)
    assert not named(found, "step_time_median").changes
    assert not named(found, "tokens_per_sec").changes
    (folder / NOISE_FILE).write_text("{}")
    broken = trends_of(folder)
    assert "noise.json" in broken.notes[0]
    assert named(broken, "step_time_median").changes


def test_worse_series_come_first() -> None:
    runs = runs_of(noise(60, 0), stepped(noise(60, 1, sd=0.003), 40, 10))
    assert trends_of_runs(runs).series[0].metric == "max_memory"


def test_no_runs_and_few_runs(tmp_path: Path) -> None:
    assert trends_of_runs([]).series == ()
    found = trends_of_runs(runs_of(noise(2, 0)))
    assert all(not one.levels and "needed" in one.notes[-1] for one in found.series)
    with pytest.raises(InputError, match="holds no baseline history"):
        trends_in(tmp_path)
    filled(tmp_path, runs_of(noise(2, 0)))
    with pytest.raises(InputError, match=r"no canary 'x'.*it has: sft_smoke"):
        trends_in(tmp_path, canary="x")


@pytest.mark.parametrize("payload", PAYLOADS[::3])
def test_texts_of_strangers_stay_on_one_line(payload: str) -> None:
    runs = [committed(planted(payload, machine=True), f"{n:040x}") for n in range(8)]
    for n, one in enumerate(runs):
        one.env = {**one.env, "driver": payload * (n + 1)}
    found = trends_of_runs(runs)
    texts = [
        text
        for _, changes in found.machine_changes
        for one in changes
        for text in (one.name, one.before, one.now)
    ]
    assert texts
    assert all(text.isprintable() and len(text) <= 60 for text in texts)


@pytest.mark.parametrize("value", [1e308, 5e-324, -1e300])
def test_absurd_numbers_do_no_harm(value: float) -> None:
    runs = runs_of(noise(12, 0))
    for one in runs[6:]:
        one.perf.max_mem_mb = value
        one.stability.loss_values = [value] * 20
        one.stability.grad_norm_values = [value] * 20
    found = trends_of_runs(runs)
    assert np.isfinite([one.percent for s in found.series for one in s.changes]).all()


def test_an_entry_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = filled(tmp_path, runs_of(noise(8, 0)))
    first = min(folder.glob("2*.json"))
    first.write_text("{")
    with pytest.raises(RecordError, match=first.name.replace("+", r"\+")):
        trends_of(folder)


def test_a_core_install_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ruptures" else real(name)
    )
    with pytest.raises(MachineError, match=r"rlhf-canary\[history\]"):
        trends_of_runs(runs_of(noise(8, 0)))
