"""The tolerances: documented values, files, wrong values; and that a check reads every one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from canary.compare.thresholds import (
    DEFAULT_THRESHOLDS,
    NIGHTLY_THRESHOLDS,
    PERF_THRESHOLDS,
    Thresholds,
    from_config,
    load_thresholds,
)
from canary.config.load import load_config
from canary.config.threshold_keys import ThresholdsConfig
from canary.errors import ConfigError

FIELDS = set(Thresholds.model_fields)


def test_the_config_has_the_same_keys_in_the_same_order() -> None:
    keys = list(ThresholdsConfig.model_fields)
    assert keys[0] == "base_tier"
    assert set(keys[1:]) == FIELDS


def test_a_config_takes_its_tier_and_what_it_sets_itself() -> None:
    config = ThresholdsConfig.model_validate({"base_tier": "perf", "max_nan_steps": 2})
    assert from_config(config) == PERF_THRESHOLDS.model_copy(update={"max_nan_steps": 2})
    assert from_config(ThresholdsConfig()) == DEFAULT_THRESHOLDS


def test_a_config_accepts_no_value_that_a_comparison_refuses() -> None:
    for field in FIELDS:
        ours, theirs = Thresholds.model_fields[field], ThresholdsConfig.model_fields[field]
        assert bounds(ours) == bounds(theirs), field


def bounds(field: FieldInfo) -> set[str]:
    return {repr(part) for part in field.metadata if not isinstance(part, BeforeValidator)}


def yaml_file(folder: Path, text: str) -> Path:
    file = folder / "limits.yaml"
    file.write_text(text)
    return file


def refused(file: Path, tier: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_thresholds(file, tier)
    line = str(caught.value)
    assert "\n" not in line
    assert str(file) in line
    return line


def test_a_file_sets_what_differs_from_its_tier(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, "base_tier: nightly\nmax_kl_ratio: 3\n")
    assert load_thresholds(file) == NIGHTLY_THRESHOLDS.model_copy(update={"max_kl_ratio": 3.0})
    assert load_thresholds(file, "smoke").max_step_time_increase_pct == 15.0
    assert load_thresholds(file, "smoke").max_kl_ratio == 3.0


def test_a_canarys_config_serves_as_a_file_of_thresholds(tmp_path: Path) -> None:
    file = yaml_file(
        tmp_path,
        "training_type: sft\nmax_steps: 50\nthresholds:\n  base_tier: perf\n"
        "  max_mem_increase_mb: 1e2\n  sensitivity: adaptive\n",
    )
    found = load_thresholds(file)
    assert found == from_config(load_config(file).config.thresholds)
    assert found.max_mem_increase_mb == 100.0
    assert found.max_step_time_increase_pct == 8.0
    assert found.sensitivity == "adaptive"


def test_an_unknown_key_names_file_key_and_the_nearest_known_one(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, "max_nan_step: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_thresholds(file)
    assert str(caught.value) == (
        f"unknown threshold 'max_nan_step' in {file} (did you mean 'max_nan_steps'?)"
    )
    assert caught.value.file == str(file)
    assert caught.value.key == "max_nan_step"
    assert "no check reads it" in refused(yaml_file(tmp_path, "zzz: 1\n"))


WRONG = [
    ("max_nan_steps: -1", "max_nan_steps", "-1"),
    ("max_nan_steps: 0.5", "max_nan_steps", "0.5"),
    ("max_step_time_increase_pct: -3", "max_step_time_increase_pct", "-3"),
    ("max_step_time_increase_pct: fast", "max_step_time_increase_pct", "'fast'"),
    ("max_step_time_increase_pct: .inf", "max_step_time_increase_pct", "inf"),
    ("max_step_time_increase_pct: .nan", "max_step_time_increase_pct", "nan"),
    ("max_tps_drop_pct: 100", "max_tps_drop_pct", "100"),
    ("sensitivity: keen", "sensitivity", "'keen'"),
]


@pytest.mark.parametrize(("text", "key", "value"), WRONG)
def test_a_wrong_value_is_one_line_with_file_key_and_value(
    tmp_path: Path, text: str, key: str, value: str
) -> None:
    line = refused(yaml_file(tmp_path, f"{text}\n"))
    assert line.startswith(f"{key} in ")
    assert f"got {value}" in line


def test_an_unknown_tier_in_a_file_names_the_file(tmp_path: Path) -> None:
    line = refused(yaml_file(tmp_path, "base_tier: smok\n"))
    assert "no threshold tier 'smok'" in line
    assert "base_tier" in line


def test_a_threshold_beside_its_section_is_refused(tmp_path: Path) -> None:
    nested = "thresholds:\n  max_nan_steps: 0\n"
    assert "has no effect outside `thresholds:`" in refused(
        yaml_file(tmp_path, f"max_nan_steps: 3\n{nested}")
    )


def test_a_missing_or_empty_file_is_one_line(tmp_path: Path) -> None:
    assert "no config at" in refused(tmp_path / "none.yaml")
    assert "is empty" in refused(yaml_file(tmp_path, ""))
    refused(yaml_file(tmp_path, "- 1\n"))
    refused(yaml_file(tmp_path, "a: [\n"))
