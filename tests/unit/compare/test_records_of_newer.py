"""A record of a newer version with the same schema: what it adds is kept and ignored."""

from __future__ import annotations

import json
from pathlib import Path

from canary.compare.stats import compare_to_baseline
from canary.record.folder import load_record
from tests.unit.comparing import EXAMPLES


def test_what_a_newer_version_adds_is_kept_and_ignored(tmp_path: Path) -> None:
    example = EXAMPLES / "sft_smoke.json"
    newer = json.loads(example.read_text(encoding="utf-8"))
    newer["exact"]["new_section"] = {"a": [1, None]}
    newer["exact"]["first_loss"]["new_key"] = "text"
    newer["exact"]["batches"][0][0]["new_count"] = 3
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(newer))
    record = load_record(path)
    assert json.loads(record.model_dump_json())["exact"] == newer["exact"]
    baseline = load_record(example).model_copy(update={"run_id": "baseline"})
    assert compare_to_baseline(record, baseline).first_difference is None
