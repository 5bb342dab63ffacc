"""The config of a record is used only as far as it runs no code of whoever wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.bisect.packages.pins import Pins
from canary.bisect.packages.recorded_config import recorded_config
from canary.config.load import load_config
from canary.errors import UsageError
from tests.unit.comparing import example


def pins(config: dict[str, Any] | None) -> Pins:
    made = None if config is None else example().model_copy(update={"config": config})
    return Pins(Path("metrics.json"), {}, record=made)


def test_a_real_config_comes_back(tmp_path: Path) -> None:
    loaded = load_config(None, ["max_steps=7", "thresholds.max_nan_steps=3"])
    text = recorded_config(pins(loaded.config.model_dump(mode="json")), pins(None))
    (tmp_path / "c.yaml").write_text(text)
    again = load_config(tmp_path / "c.yaml").config
    assert again.max_steps == 7
    assert again.training_type == "dpo"
    assert again.thresholds == loaded.config.thresholds


def test_the_good_end_comes_first() -> None:
    text = recorded_config(pins({"max_steps": 3}), pins({"max_steps": 4}))
    assert yaml.safe_load(text) == {"max_steps": 3}
    assert yaml.safe_load(recorded_config(pins(None), pins({"max_steps": 4}))) == {"max_steps": 4}


@pytest.mark.parametrize(
    "config",
    [
        {"command": ["rm", "-rf", "/"]},
        {"training_type": "exec"},
        {"training_type": "custom"},
        {"reward_functions": ["evil:run"]},
        {"model_factory": "evil:run"},
        {"trust_remote_code": True},
        {"trainer_args": {"x": 1}},
        {"attn_implementation": "evil/kernel"},
        {"save_model": "/etc"},
        {"import": {"x": 1}},
        {"unknown\x1b[2J": 1},
    ],
)
def test_a_config_that_may_run_code_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="which may run a stranger's code") as raised:
        recorded_config(pins(config), pins(None))
    assert str(raised.value).isprintable()


def test_without_a_record_a_config_is_needed() -> None:
    with pytest.raises(UsageError, match="no config"):
        recorded_config(pins(None), pins(None))
