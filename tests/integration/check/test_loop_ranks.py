"""`canary check` starts a plain loop on two ranks, if it says that it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.check.test_check import checked
from tests.integration.exec.user_scripts import PYTHON

pytestmark = [pytest.mark.train, pytest.mark.slow]

LOOP = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
ROWS = [torch.tensor([3 + row % 36, 3 + row // 36, 7, 8 + row % 5, 2]) for row in range(96)]
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(48, 16), nn.Linear(16, 48))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(ROWS, world, rank, seed=3)
for step, ids in enumerate(DataLoader(ROWS, 4, sampler=sampler)):
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    loss.backward()
    if world > 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
    optimizer.step()
    optimizer.zero_grad()
    if step == 7:
        break
"""
NO_SAMPLER = ("sampler=sampler", "shuffle=True")
NO_EXCHANGE = ("    if world > 1:\n        for", "    if False:\n        for")


@pytest.mark.parametrize(
    ("edits", "status", "words"),
    [
        ((), "holds", "48 rows are shared by two ranks, which end with equal parameters"),
        ((NO_SAMPLER,), "broken", "two ranks see 8 of 16 rows twice"),
        ((NO_EXCHANGE,), "broken", "after the last update, the ranks hold different parameters"),
    ],
    ids=["healthy", "no sampler", "no exchange"],
)
def test_ranks_of_a_loop(
    tmp_path: Path, edits: tuple[tuple[str, str], ...], status: str, words: str
) -> None:
    text = LOOP
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "train.py").write_text(text)
    _, found = checked(tmp_path, "--only", "ranks", "-o", "here", "--", PYTHON, "train.py")
    assert found["ranks"]["status"] == status, found
    assert words in found["ranks"]["message"]
