"""What enters a loop is seen in whatever form, and the first difference is the earliest step's."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.integration.exec.user_scripts import PYTHON, watched

pytestmark = [pytest.mark.train, pytest.mark.slow]

HEAD = """
import sys
from dataclasses import dataclass
import torch
from torch import nn
from torch.utils.data import DataLoader
torch.manual_seed(0)
torch.set_num_threads(1)
fault = FAULT
def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHARED_STREAM = """
ids = torch.randint(0, 40, (500,))
model = nn.Sequential(nn.Embedding(40, 16), nn.Dropout(0.3), nn.Linear(16, 40))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
def draw():
    at = torch.randint(480, (4,))
    rows = torch.stack([ids[i : i + 9] for i in at])
    return rows[:, :-1], rows[:, 1:]
def loss_of(x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
model.eval()
with torch.no_grad():
    loss_of(*draw())
if not fault:
    model.train()
for _ in range(20):
    update(loss_of(*draw()))
"""
POLICY = """
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
shift = 1.0 if fault == "observations" else 0.0
for _ in range(20):
    seen = torch.randn(32, 4) + shift
    with torch.no_grad():
        done = torch.distributions.Categorical(logits=policy(seen)).sample()
    gain = (done == (seen.sum(1) > 0)).float()
    chosen = torch.distributions.Categorical(logits=policy(seen)).log_prob(done)
    update((chosen * gain).mean() * (1 if fault == "sign" else -1))
"""
OBJECTS = """
@dataclass
class Experience:
    ids: torch.Tensor
    gain: torch.Tensor
rows = [Experience(torch.randint(0, 50, (8,)), torch.randn(())) for _ in range(80)]
if fault == "rows":
    rows = rows[::-1]
if fault == "gain":
    rows = [Experience(row.ids, 1 - row.gain) for row in rows]
def collate(rows):
    return Experience(
        torch.stack([row.ids for row in rows]), torch.stack([row.gain for row in rows])
    )
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for batch in DataLoader(rows, batch_size=4, collate_fn=collate):
    update((model.forward(batch.ids).squeeze(1) * batch.gain).mean())
"""
FLOAT_LABELS = """
flip = 1 if fault else 0
rows = [
    {"input_ids": torch.randint(0, 50, (8,)), "score": abs(flip - torch.rand(()))}
    for _ in range(80)
]
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(128, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for batch in DataLoader(rows, batch_size=4):
    update((model(batch["input_ids"]).squeeze(1) - batch["score"]).pow(2).mean())
"""
PAIRS_WITHOUT_LOADER = """
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(96, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(20):
    chosen, rejected = torch.randint(0, 50, (2, 4, 6))
    weight = 2.0 if fault == "weight" else 1.0
    if fault == "twice":
        model.forward(chosen)
    if fault == "chosen":
        chosen = chosen.roll(1, 1)
    better, worse = model.forward(chosen), model.forward(rejected)
    update(-nn.functional.logsigmoid(better - worse).mean() * weight)
"""
EPOCHS = """
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
def logprobs(seen, done):
    return torch.distributions.Categorical(logits=policy(seen)).log_prob(done)
for _ in range(10):
    seen, done = torch.randn(32, 4), torch.randint(0, 2, (32,))
    gain = (done == (seen.sum(1) > 0)).float()
    old = logprobs(seen, done).detach()
    for _ in range(2):
        if fault == "anew":
            old = logprobs(seen, done).detach()
        update(-((logprobs(seen, done) - old).exp() * gain).mean())
"""
LABELS_OUTSIDE = """
model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
def rows():
    for _ in range(20):
        ids = torch.randint(0, 50, (4, 12))
        labels = ids.clone()
        if fault != "prompt_unmasked":
            labels[:, :4] = -100
        yield {"ids": ids, "labels": labels}
for batch in rows():
    logits = model(batch["ids"])[:, :-1].flatten(0, 1)
    update(nn.functional.cross_entropy(logits, batch["labels"][:, 1:].flatten()))
"""


def recorded(folder: Path, script: str, fault: str = "", path: Path | None = None) -> RunRecord:
    """Train the script; `path`: a folder of installed packages."""
    place = folder / (fault or "clean")
    place.mkdir()
    (place / "train.py").write_text(HEAD.replace("FAULT", repr(fault)) + script)
    ended = watched(
        place,
        PYTHON,
        "train.py",
        options=("--name", "own", "--exact"),
        environment={"PYTHONPATH": str(path)} if path else None,
    )
    return ended.record()


def cause(found: Comparison) -> str:
    assert found.diagnosis.top_suspect is not None
    return found.diagnosis.top_suspect.category


def first(found: Comparison) -> tuple[str, int]:
    assert found.first_difference is not None
    return found.first_difference.stage, found.first_difference.step or 1


def test_a_loss_of_step_1_comes_before_batches_of_step_2(tmp_path: Path) -> None:
    clean = recorded(tmp_path, SHARED_STREAM)
    found = compare_to_baseline(recorded(tmp_path, SHARED_STREAM, "stays"), clean, gates=())
    assert (first(found), cause(found)) == (("first_loss", 1), "objective"), found.first_line
    assert [d.step for d in found.differences if d.stage == "batches"] == [2]
    assert found.first_line.startswith("Regression: the model trains in evaluation mode")


def test_a_policys_observations_are_its_batch(tmp_path: Path) -> None:
    clean = recorded(tmp_path, POLICY)
    (micro,) = clean.exact["batches"][0]
    assert (micro["shapes"], micro["unseen"]) == ({"input": [32, 4]}, ["labels"])
    again = compare_to_baseline(clean.model_copy(update={"run_id": "again"}), clean, gates=())
    assert "equal, as far as seen: labels or other targets" in again.check("batches").message
    sign = compare_to_baseline(recorded(tmp_path, POLICY, "sign"), clean, gates=())
    assert (first(sign), cause(sign)) == (("first_loss", 1), "objective"), sign.first_line
    assert sign.diagnosis.top_suspect is not None
    assert "labels or other targets were not seen" in sign.diagnosis.top_suspect.description
    assert "same batch" not in str(sign.diagnosis)
    seen = compare_to_baseline(recorded(tmp_path, POLICY, "observations"), clean, gates=())
    assert (first(seen), cause(seen)) == (("batches", 1), "data"), seen.first_line


def test_objects_of_a_loader_are_seen_and_a_forward_that_is_called_itself(tmp_path: Path) -> None:
    clean = recorded(tmp_path, OBJECTS)
    for step in clean.exact["batches"]:
        assert [micro["shapes"] for micro in step] == [{"gain": [4], "input_ids": [4, 8]}]
        assert [micro["unseen"] for micro in step] == [[]]
        assert all("fed_sha256" in micro for micro in step), "also of step 1"
    for fault in ("rows", "gain"):
        found = compare_to_baseline(recorded(tmp_path, OBJECTS, fault), clean, gates=())
        assert (first(found), cause(found)) == (("batches", 1), "data"), (fault, found.first_line)


def test_float_labels_beside_token_ids_are_part_of_the_batch(tmp_path: Path) -> None:
    clean = recorded(tmp_path, FLOAT_LABELS)
    found = compare_to_baseline(recorded(tmp_path, FLOAT_LABELS, "flipped"), clean, gates=())
    assert (first(found), cause(found)) == (("batches", 1), "data"), found.first_line


def test_every_call_of_a_backward_is_seen_without_a_loader(tmp_path: Path) -> None:
    clean = recorded(tmp_path, PAIRS_WITHOUT_LOADER)
    (micro,) = clean.exact["batches"][0]
    assert (micro["shapes"], micro["earlier_calls"]) == ({"input_ids": [4, 6]}, 1)
    chosen = compare_to_baseline(
        recorded(tmp_path, PAIRS_WITHOUT_LOADER, "chosen"), clean, gates=()
    )
    assert (first(chosen), cause(chosen)) == (("batches", 1), "data"), chosen.first_line
    weight = compare_to_baseline(
        recorded(tmp_path, PAIRS_WITHOUT_LOADER, "weight"), clean, gates=()
    )
    assert (first(weight), cause(weight)) == (("first_loss", 1), "objective"), weight.first_line
    more = compare_to_baseline(recorded(tmp_path, PAIRS_WITHOUT_LOADER, "twice"), clean, gates=())
    assert more.check("batches").status == "pass", more.check("batches").message
    assert (first(more)[0], cause(more)) == ("work", "kernel"), more.first_line


def test_old_log_probabilities_made_anew_in_each_epoch_are_the_objectives(tmp_path: Path) -> None:
    clean = recorded(tmp_path, EPOCHS)
    found = compare_to_baseline(recorded(tmp_path, EPOCHS, "anew"), clean, gates=())
    assert (first(found), cause(found)) == (("trajectory", 2), "objective"), found.first_line


def test_labels_that_never_enter_the_model_are_said_to_be_unseen(tmp_path: Path) -> None:
    clean = recorded(tmp_path, LABELS_OUTSIDE)
    found = compare_to_baseline(
        recorded(tmp_path, LABELS_OUTSIDE, "prompt_unmasked"), clean, gates=()
    )
    assert first(found) == ("first_loss", 1), found.first_line
    assert cause(found) in ("data", "objective")
    assert "labels or other targets were not seen" in str(found.diagnosis)
    assert "same batch" not in str(found.diagnosis)


def test_a_package_that_nothing_imports_is_no_difference(tmp_path: Path) -> None:
    about = tmp_path / "site" / "planted-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (about / "RECORD").write_text("planted.py,,\n")
    (about.parent / "planted.py").touch()
    clean = recorded(tmp_path, POLICY)
    found = compare_to_baseline(
        recorded(tmp_path, POLICY, "sign", path=about.parent), clean, gates=()
    )
    assert found.environment_changes == ()
    assert (found.verdict, first(found)) == ("changed", ("first_loss", 1)), found.first_line
