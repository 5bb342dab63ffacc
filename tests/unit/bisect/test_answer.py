"""The answer as people and programs read it."""

from __future__ import annotations

import json
from pathlib import Path

from canary.bisect.answer import Answered, answer_text
from canary.bisect.journal import Journal
from tests.unit.bisect.test_finding import bench_of, worse_since
from tests.unit.bisect.workshop import MadeBench, bisected, ground_of


def answered(bench: MadeBench, check: str | None) -> Answered:
    found = bisected(bench, check)
    journal = Journal.open(bench.folder, {"made": "up"})
    journal.rows.extend(journal.to_replay)
    journal.close()
    return Answered(found, ground_of(bench), journal, {"good": "v1", "bad": "HEAD"}, "canary.yaml")


def test_a_culprit_is_named_first_with_its_evidence(tmp_path: Path) -> None:
    made = answered(bench_of(tmp_path, worse_since("c7")), "first_loss")
    text = answer_text(made, "text")
    assert text.splitlines()[0] == "Found: c7 changed first_loss (the loss of step 1)."
    assert "ends         first_loss: 2 at good, 3 at bad" in text
    assert "last step    2 -> 3 (+50.0%)" in text
    assert "Still possible" not in text
    assert made.exit_code == 0


def test_a_range_lists_its_commits_in_order_and_why(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c8"))
    bench.broken = dict.fromkeys(("c7", "c8"), "setup | failed")
    made = answered(bench, "first_loss")
    text = answer_text(made, "text")
    assert text.startswith("Not decided: it is one of 3 commits.")
    places = [text.index(f"  {name}\n") for name in ("c7", "c8", "c9")]
    assert places == sorted(places)
    assert "setup | failed" in text
    assert made.exit_code == 3
    assert made.status == "range"
    markdown = answer_text(made, "markdown")
    assert "setup \\| failed" in markdown


def test_json_holds_all_of_it(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c7"))
    bench.broken = {"c8": "does not build"}
    document = json.loads(answer_text(answered(bench, "first_loss"), "json"))
    assert document["schema_version"] == 1
    assert document["status"] == "found"
    assert document["culprit"]["name"] == "c7"
    assert document["check"] == "first_loss"
    assert document["signal"] == "exact"
    assert document["good"]["name"] == "v1"
    assert document["last_step"]["confirmed"] is True
    assert document["last_step"]["check"]["current"] == 3.0
    assert document["skipped"] == [
        {"label": document["search"][0]["label"], "reason": "does not build"}
    ]
    assert document["launches"] == sum(row["run"] is not None for row in document["runs"])
    assert {row["stage"] for row in document["runs"]} == {"ends", "search", "last"}
    assert document["comparison"]["verdict"] == "changed"
