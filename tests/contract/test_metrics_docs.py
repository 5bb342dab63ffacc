"""docs/metrics.md: its examples load and give what the page shows."""

from __future__ import annotations

from pathlib import Path

import yaml

from canary.config.load import load_config
from tests.contract.pages import DOCS, examples

PAGE = DOCS / "metrics.md"


def test_the_gates_of_the_page_load_in_a_config(tmp_path: Path) -> None:
    (first,) = examples(PAGE, "yaml")
    path = tmp_path / "canary.yaml"
    path.write_text("training_type: grpo\n" + first)
    assert [gate.name for gate in load_config(path).config.metrics] == [
        entry["name"] for entry in yaml.safe_load(first)["metrics"]
    ]
