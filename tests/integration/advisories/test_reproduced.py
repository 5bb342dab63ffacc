"""Known faults show in the affected versions, and in no other: ranges are tried on what is here."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path

import pytest

from canary.advisories.advisory import advisories
from canary.advisories.facts import known_of
from canary.advisories.matching import matches
from canary.inputs import embedded
from canary.machine.packages import package_versions
from canary.record.folder import load_record
from canary.record.runs import run_folders
from tests.integration.advisories.reproductions import REPRODUCTIONS, is_affected
from tests.integration.conftest import canary

BY_ID = {one.id: one for one in advisories()}


@pytest.mark.train
@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_a_fault_shows_if_and_only_if_the_version_is_affected(name: str, tmp_path: Path) -> None:
    if package_versions()[BY_ID[name].package] is None:
        pytest.skip("not installed")
    assert REPRODUCTIONS[name](tmp_path) is is_affected(BY_ID[name])


SCRIPT = """
import json
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

rows = [json.loads(line) for line in open("preference.jsonl")][:16]
args = DPOConfig("out", max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True,
                 bf16=False, gradient_checkpointing=False, save_strategy="no", logging_steps=1,
                 logging_nan_inf_filter=False, disable_tqdm=True, max_length=128)
DPOTrainer("model", args=args, train_dataset=Dataset.from_list(rows),
           processing_class=AutoTokenizer.from_pretrained("model")).train()
"""


OPTIONS = ("-o", "runs", "--set", "repeats=0")


@pytest.mark.train
def test_dpo_with_dropout_in_the_model_does_not_begin_at_ln_2(tmp_path: Path) -> None:
    """`trl-dropout-functional`, and the record of a script tells that it applies for sure."""
    data = Path(embedded.__file__).parent
    shutil.copytree(data / "tiny", tmp_path / "model")
    shutil.copy(data / "data" / "preference.jsonl", tmp_path)
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attention_dropout": 0.3}))
    (tmp_path / "train.py").write_text(SCRIPT)
    done = canary("exec", *OPTIONS, "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.code == 0, done.err
    record = load_record(run_folders(tmp_path / "runs")[-1])
    loss = record.exact["first_loss"]["loss"]
    assert loss is not None
    assert abs(loss - math.log(2)) > 1e-4
    sure = {one.advisory.id for one in matches(advisories(), known_of(record)) if not one.unknown}
    assert "trl-dropout-functional" in sure
