"""The recipe "add a trainer": one row in the table of trainers, and one builder.

Both lie in a folder on PYTHONPATH, whose `sitecustomize` adds the row in every process: as if it
stood in the table.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from canary.config.trainers import TRAINERS
from canary.record.folder import load_record
from canary.record.jsonio import read_rows
from canary.record.phases import PHASES
from tests.contract.pages import ROOT
from tests.integration.conftest import PATIENT, canary, settings, write_config

ROW = """
from canary.config.trainer_rules import is_log_likelihood
from canary.config.trainers import TRAINERS, TrainerRow

TRAINERS["echo"] = TrainerRow(
    title="Echo",
    builder="echo_builder",
    uses=frozenset({"max_length", "callbacks", "speed.optimizer"}),
    defaults={"learning_rate": 2e-4, "max_length": 96},
    rows="completion",
    phases={"_score_echo": "reward"},
    metrics=("echo",),
    never_negative=is_log_likelihood,
    takes_rows="prompt and completion",
    recorded="loudness of the echo",
)
"""

BUILDER = """
from trl import SFTConfig, SFTTrainer

from canary.training.trainers.arguments import training_arguments
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_model, load_tokenizer
from canary.training.plugins import callbacks


class EchoTrainer(SFTTrainer):
    def compute_loss(self, *args, **kwargs):
        self._metrics["train"]["echo"].append(self._score_echo())
        return super().compute_loss(*args, **kwargs)

    def _score_echo(self):
        return 0.5


def build(spec):
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    return EchoTrainer(
        model=load_model(spec, tokenizer),
        args=training_arguments(spec, SFTConfig, max_length=spec.config.max_length),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
    )
"""

TABLES = """
from canary.ladder.switches import SWITCHES
from tests.contract.tables import keys_table, trainers_table
print(trainers_table() + keys_table())
print(*(switch.name for switch in SWITCHES if switch.used_by("echo")), sep=", ")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the row and the builder."""
    folder = tmp_path_factory.mktemp("echo")
    (folder / "sitecustomize.py").write_text(ROW)
    (folder / "echo_builder.py").write_text(BUILDER)
    return folder


def test_a_trainers_row_shows_in_help_schema_docs_and_samples(place: Path) -> None:
    built_in = ", ".join([*(name for name in TRAINERS if name != "custom"), "echo", "exec"])
    assert built_in in " ".join(canary("init-config", "--help", cwd=place).out.split())
    schema = json.loads(canary("config", "schema", cwd=place).out)
    assert schema["properties"]["training_type"]["enum"][-3:] == ["echo", "custom", "exec"]
    assert "Echo 2e-4" in schema["properties"]["learning_rate"]["description"]

    tables = subprocess.run(
        [sys.executable, "-c", TABLES],
        cwd=place,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}"},
    ).stdout
    assert "| `echo` | prompt and completion | loudness of the echo |\n" in tables
    assert "| `max_length` | int | `null` | sft, dpo, reward, kto, orpo, cpo, echo |" in tables
    assert "fused optimizer, SDPA, " in tables.splitlines()[-1]

    assert canary("init-config", "echo.yaml", "--type", "echo", cwd=place).code == 0
    shown = canary("config", "show", "echo.yaml", cwd=place).out
    assert "training_type: echo" in shown
    assert "learning_rate: 0.0002" in shown
    assert "# echo default" in shown
    refused = canary("config", "show", "echo.yaml", "--set", "beta=0.1", cwd=place).err
    assert "beta in --set is not used by training_type echo" in refused


@pytest.mark.train
def test_a_trainers_row_and_builder_train_and_their_records_compare(place: Path) -> None:
    config = write_config(place, settings("echo", max_steps=9, look_steps=3, thresholds=PATIENT))
    once, again = (canary("run", str(config), "-o", f"out{n}", cwd=place) for n in (1, 2))
    assert (once.code, again.code) == (0, 0), once.err + again.err

    folder = place / once.folder
    record = load_record(folder)
    assert record.config["training_type"] == "echo"
    assert record.config["learning_rate"] == 2e-4
    assert record.rl["echo"].mean == 0.5
    assert record.exact["trajectory"]["rl"]["echo"] == [0.5] * 3
    assert all("reward" in row["phases"] for row in read_rows(folder / "steps.jsonl"))

    form = ("--format", "json")
    compared = canary("compare", str(again.folder), str(once.folder), *form, cwd=place)
    checks = {check["name"]: check for check in json.loads(compared.out)["checks"]}
    assert compared.code == 0, compared.err
    assert checks["loss_not_negative"]["status"] == "pass"
    assert checks["trajectory"]["status"] == "pass"
    assert checks["dpo_first_loss"]["message"] == "only for DPO"


def test_every_row_names_a_builder_and_phases_that_exist() -> None:
    for row in TRAINERS.values():
        for builder in filter(None, (row.builder, row.trl_builder)):
            assert importlib.util.find_spec(builder), row.title
        assert set(row.phases.values()) <= set(PHASES)
