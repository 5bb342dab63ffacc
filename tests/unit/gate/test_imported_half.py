"""The training job of a config with `import:`, from the base branch's section to the record."""

from __future__ import annotations

import sys
from pathlib import Path

from canary.gate.inputs import TrainSettings
from canary.gate.records import load_records
from canary.gate.run_job import train
from tests.contract.git_server import git

TRAIN = """
import json
for folder, loss in (("left", 2.0), ("mine", 1.0)):
    with open(folder + ".jsonl", "w") as file:
        for step in range(1, 21):
            file.write(json.dumps({"step": step, "loss": loss, "lr": 1.0}) + "\\n")
"""
CONFIG = "name: tiny\ncommand: [python3, train.py]\nimport: {source: left.jsonl, preset: none}\n"


def test_a_pull_request_is_recorded_by_the_base_branchs_source(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    git(checkout, "init", "-q", "-b", "main")
    (checkout / "train.py").write_text(TRAIN, encoding="utf-8")
    (checkout / "canary.yaml").write_text(CONFIG, encoding="utf-8")
    (checkout / "left.jsonl").write_text('{"step": 99, "loss": 0.0}\n', encoding="utf-8")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "base")
    base = git(checkout, "rev-parse", "HEAD")
    (checkout / "canary.yaml").write_text(CONFIG.replace("left", "mine"), encoding="utf-8")
    git(checkout, "commit", "-qam", "change")
    environ = {
        "CANARY_CONFIG": "canary.yaml",
        "CANARY_GPUS": "none",
        "CANARY_BASE_SHA": base,
        "CANARY_CHECKOUT": str(checkout),
        "CANARY_RECORDS": str(tmp_path / "records"),
        "CANARY_SCRATCH": str(tmp_path / "scratch"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    (tmp_path / "scratch").mkdir()
    said: list[str] = []
    assert train(TrainSettings.read(environ), environ, said.append) == 0, said
    records = load_records(tmp_path / "records")
    (part,) = records.manifest.parts
    (run,) = records.runs(part, "current")
    assert run.status == "completed", run.reason
    assert run.source is not None
    assert run.source.files == ["left.jsonl"]
    assert set(run.stability.loss_values) == {2.0}
    (note,) = part.notes
    assert note.startswith('import: this run used the base branch\'s {"source": "left.jsonl"')
