"""Records of earlier versions are read whole, and compare as they did when they were written.

`tests/golden/records_of_before.json` was written by the version before the record was typed:
`python -m tests.unit.compare.test_records_of_before` shows what this one makes of the same records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from canary.compare.stats import compare_to_baseline
from canary.record.folder import load_record

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "records_of_before.json"
RECORDS = {
    str(path.relative_to(ROOT)): path
    for folder in ("baselines/examples", "baselines/examples/explained", "tests/data")
    for path in sorted((ROOT / folder).glob("*.json"))
    if "noise" not in path.name
}


NEWER = frozenset(("steps_trained",))
"""Checks that versions of before did not make."""


def compared(current: str, baseline: str) -> dict[str, Any]:
    """Verdict, checks by status and differences: the fields of a comparison, without its words."""
    now, before = (load_record(RECORDS[name]) for name in (current, baseline))
    found = compare_to_baseline(now.model_copy(update={"run_id": "current"}), before)
    checks: dict[str, list[str]] = defaultdict(list)
    for check in found.checks:
        if check.name in NEWER:
            continue
        checks[check.status].append(check.name)
    return {
        "verdict": found.verdict,
        "checks": dict(sorted(checks.items())),
        "differences": [f"{d.order} {d.stage}.{d.signal} {d.count}" for d in found.differences],
        "suspects": [f"{s.category} {s.confidence}" for s in found.diagnosis.suspects],
    }


def all_compared() -> dict[str, Any]:
    """Every record against every other."""
    return {
        f"{current} against {baseline}": compared(current, baseline)
        for current in RECORDS
        for baseline in RECORDS
    }


def test_records_of_before_compare_as_before() -> None:
    known, found = json.loads(GOLDEN.read_text(encoding="utf-8")), all_compared()
    assert found.keys() == known.keys()
    for pair, answer in found.items():
        assert answer == known[pair], pair


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_before_is_written_as_it_was_read(name: str) -> None:
    """What a reader may change: a key of another section than `exact` that is missing has its
    default."""
    held = json.loads(RECORDS[name].read_text(encoding="utf-8"))
    written = json.loads(load_record(RECORDS[name]).model_dump_json())
    assert json.dumps(written["exact"], sort_keys=True) == json.dumps(held["exact"], sort_keys=True)
    assert written.keys() >= held.keys()


def test_what_a_newer_version_adds_is_kept_and_ignored(tmp_path: Path) -> None:
    name = "baselines/examples/sft_smoke.json"
    newer = json.loads(RECORDS[name].read_text(encoding="utf-8"))
    newer["exact"]["new_section"] = {"a": [1, None]}
    newer["exact"]["first_loss"]["new_key"] = "text"
    newer["exact"]["batches"][0][0]["new_count"] = 3
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(newer))
    record = load_record(path)
    assert json.loads(record.model_dump_json())["exact"] == newer["exact"]
    baseline = load_record(RECORDS[name]).model_copy(update={"run_id": "baseline"})
    assert compare_to_baseline(record, baseline).first_difference is None


if __name__ == "__main__":
    lines = (f"{json.dumps(pair)}: {json.dumps(found)}" for pair, found in all_compared().items())
    print("{\n" + ",\n".join(lines) + "\n}")
