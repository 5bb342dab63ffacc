"""docs/metrics.md: its examples load and give what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from canary.config.load import load_config
from canary.config.metric_gates import OF_SINGLE_STEPS
from tests.contract.pages import DOCS, examples, read

PAGE = DOCS / "metrics.md"


def test_the_gates_of_the_page_load_in_a_config(tmp_path: Path) -> None:
    (first,) = examples(PAGE, "yaml")
    path = tmp_path / "canary.yaml"
    path.write_text("training_type: grpo\n" + first)
    assert [gate.name for gate in load_config(path).config.metrics] == [
        entry["name"] for entry in yaml.safe_load(first)["metrics"]
    ]


def test_the_table_of_spikes_has_the_statistics_of_single_steps() -> None:
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+) \| (?:more|the value)", read(PAGE), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(OF_SINGLE_STEPS)
