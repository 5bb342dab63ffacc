"""The config key `metrics`: what it takes, what it refuses in one line, and how it travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.compare.exact.changes import config_changes
from canary.compare.paths import Request, compared_paths, metric_gates_for
from canary.compare.thresholds import load_metric_gates, load_thresholds
from canary.config.load import gates_in, load_config
from canary.config.metric_gates import KNOWN_WORSE, MetricGate
from canary.config.render import resolved_yaml
from canary.errors import ConfigError
from canary.record.curves import ROW_METRICS
from tests.unit.comparing import altered, record, write
from tests.unit.gating import with_curve

GOOD: list[dict[str, Any]] = [
    {"name": "reward", "limit": "5%"},
    {"name": "reward", "limit": "2.5 %", "last": 10},
    {"name": "train/x", "statistic": "median", "worse": "higher", "limit": 1.1},
    {"name": "train/x", "statistic": "at", "step": -1, "worse": "both", "limit": "1e-3"},
    {"name": "x", "statistic": "share_above", "above": 1.05, "worse": "higher", "limit": 0.1},
    {"name": "loss", "statistic": "max", "limit": "history", "spikes": 0},
    {"name": "loss", "from_step": -10, "to_step": -2, "limit": 2, "exclusive": True},
    {"name": "loss", "of_step": 1, "limit": 0.6},
]


def config(tmp_path: Path, gates: Any, **more: Any) -> Path:
    path = tmp_path / "canary.yaml"
    path.write_text(yaml.safe_dump({"training_type": "sft", "metrics": gates, **more}))
    return path


def test_gates_survive_the_way_through_config_and_record(tmp_path: Path) -> None:
    loaded = load_config(config(tmp_path, GOOD))
    assert len(loaded.config.metrics) == len(GOOD)
    written = tmp_path / "resolved.yaml"
    written.write_text(resolved_yaml(loaded))
    assert load_config(written).config.metrics == loaded.config.metrics
    stored = loaded.config.model_dump(mode="json")["metrics"]
    assert gates_in(stored, "a record") == loaded.config.metrics


BAD: list[tuple[Any, str]] = [
    ({"limit": 1}, "metrics.0.name"),
    ({"name": "x", "limit": 1}, "needs worse: higher, lower or both"),
    ({"name": "loss"}, "metrics.0.limit"),
    ({"name": "loss", "limit": "five"}, "a percentage such as 5%"),
    ({"name": "loss", "limit": True}, "must be a number, a percentage"),
    ({"name": "loss", "limit": "nan"}, "metrics.0.limit"),
    ({"name": "loss", "limit": "-5%"}, "a percentage such as 5%"),
    ({"name": "loss", "limit": 1, "statistic": "avg"}, "metrics.0.statistic"),
    ({"name": "loss", "limit": 1, "statistic": "at"}, "needs step"),
    ({"name": "loss", "limit": 1, "statistic": "share_above"}, "needs above"),
    ({"name": "loss", "limit": 1, "last": 0}, "metrics.0.last"),
    ({"name": "loss", "limit": 1, "last": 3, "from_step": 2}, "but not both"),
    ({"name": "loss", "limit": "5%", "exclusive": True}, "exclusive needs"),
    ({"name": "loss", "limit": 1, "of_step": 1, "statistic": "count"}, "no meaning for count"),
    ({"name": "a\nb", "limit": 1, "worse": "both"}, "printable"),
    ({"name": "loss", "limt": 1}, "did you mean 'limit'?"),
    ("loss", "metrics.0"),
]


@pytest.mark.parametrize(("gate", "said"), BAD)
def test_a_wrong_gate_is_one_line_with_file_and_key(gate: Any, said: str, tmp_path: Path) -> None:
    path = config(tmp_path, [gate])
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    words = str(caught.value)
    assert said in words
    assert "\n" not in words
    assert "metrics.0" in words
    assert f"{path}:" in words
    with pytest.raises(ConfigError, match=r"metrics\.0"):
        gates_in([gate], "a record")


@pytest.mark.parametrize("gates", ["loss", [{"name": "loss", "limit": 1}] * 101])
def test_a_section_that_is_no_list_of_gates_is_refused(gates: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="metrics in"):
        load_config(config(tmp_path, gates))


def test_a_change_of_gates_changes_no_training() -> None:
    before, now = record(1), altered(record(2), "config", "metrics", to=[{"name": "x"}])
    assert all(change.cosmetic for change in config_changes(before, now))


def test_known_directions_are_of_known_metrics() -> None:
    assert set(ROW_METRICS) - {"learning_rate"} <= set(KNOWN_WORSE)


# Where the gates of a comparison come from.


def gated(number: int, limit: float, mean: float = 1.0) -> Any:
    run = with_curve(record(number), [mean] * 20)
    gates = [MetricGate.model_validate({"name": "loss", "limit": limit}).model_dump()]
    return altered(run, "config", "metrics", to=gates)


def test_the_newest_run_of_the_baseline_has_the_gates(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / name / "metrics.json", run)
        for name, run in (
            ("old", gated(1, 0.1)),
            ("new", gated(2, 5.0)),
            ("now", gated(3, 0.2, mean=2.0)),
        )
    ]
    found = compared_paths(Request((paths[2],), tuple(paths[:2]))).found
    assert found.check("metrics.loss.mean").threshold == 5.0
    assert found.check("metrics.loss.mean").status == "pass"


def test_a_file_of_limits_may_hold_gates(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text("max_nan_steps: 3\nmetrics: [{name: loss, limit: 9}]\n")
    assert load_thresholds(path).max_nan_steps == 3
    request = Request((), (), threshold_file=path)
    assert metric_gates_for(request, [gated(1, 0.1)])[0].limit == 9.0
    path.write_text("thresholds: {max_nan_steps: 3}\nmetrics: [{name: loss, limit: 9}]\n")
    assert load_thresholds(path).max_nan_steps == 3
    assert load_metric_gates(path) is not None
    path.write_text("max_nan_steps: 3\n")
    assert load_metric_gates(path) is None
    assert metric_gates_for(request, [gated(1, 0.1)])[0].limit == 0.1


def test_a_wrong_gate_of_a_file_of_limits_is_named_with_metric_and_line(tmp_path: Path) -> None:
    path = tmp_path / "gx.yaml"
    path.write_text("metrics:\n  - {name: loss, limit: 5%}\n  - {name: score, limit: 5%}\n")
    with pytest.raises(ConfigError) as caught:
        load_metric_gates(path)
    assert f"metrics.1 (score) in {path}:3: needs worse" in str(caught.value)
    path.write_text("command: [a]\nmetrics:\n  - {name: score, limit: 5%}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert f"metrics.0 (score) in {path}:3: needs worse" in str(caught.value)
