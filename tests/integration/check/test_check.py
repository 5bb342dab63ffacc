"""`canary check` on a built-in config and on a user's own script."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from canary.relations import RELATIONS
from tests.integration.exec.user_scripts import PYTHON

SCRIPT = """
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, pad_token_id=0, eos_token_id=2, bos_token_id=1))
texts = [[3 + (7 * row + 5 * at) % 36 for at in range(4 + row % 5)] + [2] for row in range(64)]

def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows])
    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"]))
                         for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

data = Dataset.from_list([{"input_ids": text} for text in texts])
args = TrainingArguments("out", max_steps=12, per_device_train_batch_size=2, report_to=[],
                         gradient_accumulation_steps=2, use_cpu=True, logging_steps=1,
                         save_strategy="no", disable_tqdm=True, learning_rate=1e-3)
Trainer(model, args, train_dataset=data, data_collator=collate).train()
"""


def checked(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run `canary check` with its JSON; return its exit code and the relations by id."""
    command = [PYTHON, "-m", "canary.cli", "check", "--format", "json", "-q", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    return done.returncode, {one["relation"]: one for one in found["relations"]}


def script(folder: Path, *edits: tuple[str, str]) -> tuple[str, ...]:
    """Write the script with some changes; return what follows the options."""
    text = SCRIPT
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "train.py").write_text(text)
    return "--", PYTHON, "train.py"


@pytest.mark.train
def test_a_built_in_canary_holds_and_leaves_its_answer(tmp_path: Path) -> None:
    code, found = checked(tmp_path, "--quick", "-o", "here")
    assert code == 0
    assert list(found) == list(RELATIONS)
    assert not [one for one in found.values() if one["status"] in ("broken", "undecided")]
    assert found["reference_start"]["status"] == "holds"
    assert found["compile"]["status"] == "not asked"
    text = (tmp_path / "here" / "check.txt").read_text()
    assert text.startswith("No relation is broken: ")
    assert (tmp_path / "here" / "check.json").is_file()
    assert "<h2>Holds (" in (tmp_path / "here" / "report.html").read_text()
    assert json.loads((tmp_path / "here" / "check.json").read_text())["launches"] <= 3


@pytest.mark.train
@pytest.mark.slow
def test_every_relation_holds_in_a_healthy_script(tmp_path: Path) -> None:
    code, found = checked(tmp_path, *script(tmp_path))
    assert code == 0, found
    launched = ("workers", "ranks", "resume", "evaluation", "fused_optimizer")
    for name in (*launched, "accumulation", "compile", "schedule"):
        assert found[name]["status"] == "holds", found[name]
    assert "updates 5 to 6" in found["resume"]["message"]


UNSHARDED = (
    "data = Dataset",
    """class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        for text in texts:
            yield {"input_ids": text}

rows = Dataset""",
)
FORGETFUL = (
    "Trainer(model,",
    """class Forgetful(Trainer):
    def _load_optimizer_and_scheduler(self, checkpoint):
        pass

Forgetful(model,""",
)
UNSHARED = (
    "Trainer(model,",
    """class Unshared(Trainer):
    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, 2, collate_fn=collate)

Unshared(model,""",
)
AVERAGED = (
    "Trainer(model,",
    """class Averaged(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs).loss / self.args.gradient_accumulation_steps

Averaged(model,""",
)


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize(
    ("relation", "edits"),
    [
        ("workers", (UNSHARDED, ("train_dataset=data", "train_dataset=Rows()"))),
        ("ranks", (UNSHARED,)),
        ("resume", (FORGETFUL,)),
        ("accumulation", (AVERAGED,)),
    ],
)
def test_a_planted_fault_breaks_its_relation(
    tmp_path: Path, relation: str, edits: tuple[tuple[str, str], ...]
) -> None:
    code, found = checked(tmp_path, "--only", relation, *script(tmp_path, *edits))
    assert found[relation]["status"] == "broken", found[relation]
    assert code == 1


OWN = """
import torch
from canary.relations.relation import Relation, broken, holds

RELATION = Relation("mine", "same work", "weights are even", "they are odd", "https://example.org/x")


def ask(look):
    total = sum(float(one.abs().sum()) for _, one in look.named_parameters())
    return VERDICT
"""


@pytest.mark.train
@pytest.mark.slow
def test_a_relation_of_the_user_holds_or_breaks(tmp_path: Path) -> None:
    for verdict, status, code in (
        ("holds(RELATION, f'they sum to {total:.3g}')", "holds", 0),
        ("broken(RELATION, 'they are odd', 'here', (1, 2))", "broken", 1),
    ):
        (tmp_path / "mine.py").write_text(OWN.replace("VERDICT", verdict))
        own = ("--only", "mine", "--relations", "mine.py")
        given, found = checked(tmp_path, *own, *script(tmp_path))
        assert (given, list(found)) == (code, ["mine"])
        assert found["mine"]["status"] == status, found
        assert found["mine"]["holds_if"] == "weights are even"
        assert found["mine"]["source"] == "https://example.org/x"
