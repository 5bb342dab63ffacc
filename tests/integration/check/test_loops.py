"""`canary check` on a plain loop that saves: in more launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.check.test_check import checked
from tests.integration.exec.user_scripts import PYTHON

pytestmark = [pytest.mark.train, pytest.mark.slow]

LOOP = """
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

ROWS = [[3 + row % 36, 3 + row // 36, *(3 + (row + 5 * at) % 36 for at in range(row % 6)), 2]
        for row in range(96)]
CHECKPOINT = "out/last.pt"

def collate(rows):
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows])
    return ids[:, :-1], ids[:, 1:], mask[:, 1:]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.rnn = nn.GRU(32, 32, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(32, 40)

    def forward(self, ids):
        return self.out(self.drop(self.rnn(self.embed(ids))[0]))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 8)
begin = 0
if os.path.exists(CHECKPOINT):
    state = torch.load(CHECKPOINT)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    begin = state["step"]
data = [row for row in ROWS[8 * begin:]]
batches = iter(DataLoader(data, 8, collate_fn=collate))
if begin:
    torch.set_rng_state(state["rng"])  # after the loader has drawn its seed
for step, (ids, labels, mask) in enumerate(batches, begin):
    losses = F.cross_entropy(model(ids).transpose(1, 2), labels, reduction="none")
    loss = (losses * mask).sum() / mask.sum()
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step + 1 == 8:
        break
    if step % 3 == 2:
        os.makedirs("out", exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state(),
                    "step": step + 1}, CHECKPOINT)
"""
NO_OPTIMIZER = (
    'optimizer.load_state_dict(state["optimizer"])',
    'optimizer.param_groups[0]["lr"] = state["optimizer"]["param_groups"][0]["lr"]',
)


def asked(folder: Path, relation: str, *edits: tuple[str, str], words: tuple[str, ...] = ()) -> Any:
    """Check the loop with some changes; return what a relation showed."""
    text = LOOP
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "train.py").write_text(text)
    _, found = checked(folder, "--only", relation, "-o", "here", "--", PYTHON, "train.py", *words)
    left = sorted(one.name for one in folder.iterdir())
    assert left == ["here", "train.py"], "neither a checkpoint nor the copy is left"
    assert not (folder / "here" / "working-folder").exists()
    return found[relation]


def launches(folder: Path) -> int:
    """Return how many launches the check took."""
    return int(json.loads((folder / "here" / "check.json").read_text())["launches"])


def test_a_loop_that_saves_all_of_its_state_resumes(tmp_path: Path) -> None:
    found = asked(tmp_path, "resume")
    assert found["status"] == "holds", found
    assert found["message"] == "losses and gradient norms of updates 4 to 6 are equal"
    assert launches(tmp_path) == 3


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (NO_OPTIMIZER, "the state of the optimizer was not restored"),
    ],
)
def test_a_loop_that_forgets_is_broken(tmp_path: Path, edit: tuple[str, str], words: str) -> None:
    found = asked(tmp_path, "resume", edit)
    assert found["status"] == "broken", found
    assert words in found["message"]
