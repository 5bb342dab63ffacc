"""The answer as people, programs and git read it."""

from __future__ import annotations

import json
from pathlib import Path

from canary.bisect.answer import Answered, Stage, answer_text, document_of
from tests.unit.bisect.test_finding import bench_of, worse_since
from tests.unit.bisect.workshop import MadeCommits, bisected


def answered(bench: MadeCommits, check: str | None) -> Answered:
    stage = Stage("commit", bench.folder, bench, bisected(bench, check), ())
    return Answered(bench.folder, document_of([stage], [stage], {"good": "v1", "notes": []}), "")


def test_a_culprit_is_named_first_with_its_evidence(tmp_path: Path) -> None:
    made = answered(bench_of(tmp_path, worse_since("c7")), "first_loss")
    text = answer_text(made, "text", 200)
    first = text.splitlines()[0]
    assert first.startswith("Found: ")
    assert first.endswith(" c7 (2026-01-01) changed first_loss (the loss of step 1).")
    assert "ends         first_loss: 2 at good, 3 at bad" in text
    assert "last step    2 -> 3 (+50.0%)" in text
    assert "Still possible" not in text
    assert made.exit_code == 0


def test_a_range_lists_its_commits_in_order_and_why(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c8"))
    bench.broken = dict.fromkeys(("c7", "c8"), "setup | failed\nat once")
    made = answered(bench, "first_loss")
    text = answer_text(made, "text", 200)
    assert text.startswith("Not decided: it is one of 3 commits, 2 between them did not run.")
    places = [text.index(f" {name} (") for name in ("c7", "c8", "c9")]
    assert places == sorted(places)
    assert "setup | failed at once" in text, "a reason never adds a line"
    assert made.exit_code == 3
    assert "setup \\| failed" in answer_text(made, "markdown")


def test_json_holds_all_of_it(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, worse_since("c7"))
    bench.broken = {"c8": "does not build"}
    document = json.loads(answer_text(answered(bench, "first_loss"), "json"))
    assert document["status"] == "found"
    assert document["culprit"]["subject"] == "c7"
    assert document["check"] == "first_loss"
    assert document["good"] == "v1"
    (stage,) = document["stages"]
    assert stage["last_step"]["confirmed"] is True
    assert stage["last_step"]["check"]["current"] == 3.0
    assert document["skipped"] == [
        {"label": stage["search"][0]["label"], "reason": "does not build"}
    ]
