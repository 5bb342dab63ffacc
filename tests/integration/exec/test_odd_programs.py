"""Programs that notice what runs beside them: under `canary exec` they print what they do alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import PYTHON, bare, watched

pytestmark = [pytest.mark.train, pytest.mark.slow]

BEGIN = """
import hashlib, os, sys
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self, table=None):
        super().__init__()
        self.table = table or nn.Embedding(32, 8)
        self.out = nn.Linear(8, 32)

    def forward(self, input_ids):
        return self.out(self.table(input_ids))

def step(model, optimizer, ids):
    logits = model(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits, loss.item()

def ids():
    return torch.randint(0, 32, (4, 9))

def random_state():
    return hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
"""
DRAWS = """
class Noise(nn.Module):
    def forward(self, weight):
        return weight + 0.01 * torch.randn_like(weight)

table = nn.Embedding(32, 8)
torch.nn.utils.parametrize.register_parametrization(table, "weight", Noise())
model = Model(table)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(16):
    print(step(model, optimizer, ids())[1])
print(random_state())
"""
LAZY = """
from collections.abc import Mapping

class Lazy(Mapping):
    def __init__(self, rows):
        self.rows = {"input_ids": torch.stack(rows)}
    def __getitem__(self, name):
        ids = self.rows[name]
        return torch.where(torch.rand(ids.shape) < 0.1, 0, ids)
    def __iter__(self):
        return iter(self.rows)
    def __len__(self):
        return 1

model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rows = [ids()[0] for _ in range(64)]
for batch in torch.utils.data.DataLoader(rows, batch_size=4, collate_fn=Lazy):
    print(step(model, optimizer, batch["input_ids"])[1])
print(random_state())
"""
SAVES = """
import warnings
warnings.simplefilter("error")
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(16):
    logits, loss = step(model, optimizer, ids())
    print(loss)
    if number < 3:
        torch.save(logits, f"logits{number}.pt")
"""
BUFFERED = """
import subprocess
print("before")
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(16):
    print(step(model, optimizer, ids())[1])
    if number == 2:
        subprocess.run(["echo", "from a subprocess"])
os._exit(4)
"""
CLOSES = """
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
files = []
for number in range(16):
    print(step(model, optimizer, ids())[1])
    if number == 2:
        os.closerange(3, 200)
        files = [open(f"file{place}.txt", "w+") for place in range(30)]
    for file in files:
        print("step", number, file=file, flush=True)
for file in files:
    file.seek(0)
    print(len(file.read()))
    file.close()
"""
TIMED = """
import signal, time

class Late(Exception):
    pass

def ring(number, frame):
    raise Late

signal.signal(signal.SIGVTALRM, ring)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
caught = 0
for number in range(40):
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005 + 0.0011 * (number % 12))
        for _ in range(3):
            step(model, optimizer, ids())
        end = time.monotonic() + 20
        while time.monotonic() < end:
            pass
    except Late:
        caught += 1
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
print(caught)
"""
THREADS = """
from concurrent.futures import ThreadPoolExecutor
pools = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(16):
    if number < 2:
        print(step(model, optimizer, ids())[1])
    else:
        print(pools[number % 2].submit(step, model, optimizer, ids()).result()[1])
print(sys.getprofile())
"""
SKIPS = """
import warnings
warnings.simplefilter("error")
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(16):
    try:
        print(step(model, optimizer, ids() + 40 * (number == 3))[1])
    except IndexError:
        print("skipped", number)
"""
PROGRAMS = {
    "draws in its weights": DRAWS,
    "reads its batches lazily": LAZY,
    "saves its logits": SAVES,
    "leaves its output in a buffer": BUFFERED,
    "closes all descriptors": CLOSES,
    "limits its time": TIMED,
    "trains in threads": THREADS,
    "skips a batch that fails": SKIPS,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_prints_and_leaves_the_same(name: str, tmp_path: Path) -> None:
    for folder in ("alone", "under"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(BEGIN + PROGRAMS[name])
    alone = bare(tmp_path / "alone", PYTHON, "train.py")
    under = watched(tmp_path / "under", PYTHON, "train.py", options=())
    assert (under.code, under.out) == (alone.code, alone.out), under.err
    left = [
        {one.name: one.read_bytes() for one in (tmp_path / folder).iterdir() if one.is_file()}
        for folder in ("alone", "under")
    ]
    assert left[0] == left[1]
