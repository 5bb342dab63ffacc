"""The files of a small project that trains a model: what its first commit holds."""

from __future__ import annotations

import json

ROWS = 96

CANARY = """\
name: trainlab
training_type: sft
dataset_name: data/train.jsonl
max_steps: 20
look_steps: 3
metrics_warmup_steps: 2
batch_size: 4
gradient_accumulation_steps: 1
threads: 1
device: cpu
data_collator: trainlab.data.collate:Collator
callbacks: [trainlab.training.callbacks:Rate]
"""

SCRIPT_CANARY = """\
name: script
command: [python, train.py]
look_steps: 3
metrics_warmup_steps: 2
threads: 1
"""

TRAIN = '''\
"""Train a small model on the rows, without a framework."""
import torch
from torch.utils.data import DataLoader

from trainlab.data.collate import Collator
from trainlab.data.text import Letters, read_rows
from trainlab.training.model import NextLetter
from trainlab.training.schedule import rate_at

STEPS = 20


def main():
    torch.manual_seed(1)
    letters = Letters()
    rows = read_rows("data/train.jsonl", letters)
    batches = DataLoader(rows, batch_size=4, collate_fn=Collator(letters))
    model = NextLetter(letters.size)
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in zip(range(STEPS), batches):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
'''

COLLATE = '''\
"""Turn rows into a padded batch."""
import torch

from trainlab.data import store

IGNORED = -100


class Collator:
    def __init__(self, tokenizer):
        self.pad = tokenizer.eos_token_id

    def __call__(self, rows):
        store.wait_for_batch()
        batch = self.padded(rows)
        batch["labels"] = batch["labels"].masked_fill(batch["attention_mask"] == 0, IGNORED)
        return batch

    def padded(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        shape = (len(rows), longest)
        batch = {
            "input_ids": torch.full(shape, self.pad),
            "attention_mask": torch.zeros(shape, dtype=torch.long),
            "labels": torch.full(shape, self.pad),
        }
        for place, row in enumerate(rows):
            length = len(row["input_ids"])
            batch["input_ids"][place, :length] = torch.tensor(row["input_ids"])
            batch["attention_mask"][place, :length] = 1
            batch["labels"][place, :length] = torch.tensor(labels_of(row))
        return batch


def labels_of(row):
    if "labels" in row:
        return row["labels"]
    pairs = zip(row["input_ids"], row["completion_mask"])
    return [token if answered else IGNORED for token, answered in pairs]
'''

STORE = '''\
"""The store of the rows is far away: a batch takes a while to come."""
import time

BATCH_S = 0.03


def wait_for_batch():
    time.sleep(BATCH_S)
'''

TEXT = '''\
"""Letters as tokens."""
import json


class Letters:
    eos_token_id = 1
    size = 64

    def encode(self, text):
        return [2 + ord(letter) % 62 for letter in text]


def read_rows(path, letters):
    found = []
    for line in open(path):
        row = json.loads(line)
        prompt = letters.encode(row["prompt"])
        answer = letters.encode(row["completion"]) + [letters.eos_token_id]
        found.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    return found
'''

MODEL = '''\
"""A model that reads one letter and says the next."""
from torch import nn


class NextLetter(nn.Module):
    def __init__(self, size, width=32):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.head = nn.Linear(width, size)

    def forward(self, input_ids):
        return self.head(self.embedding(input_ids))

    def loss(self, batch):
        logits = self(batch["input_ids"][:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())
'''

SCHEDULE = '''\
"""The learning rate of each step."""
PEAK = 5e-4
WARMUP = 2


def rate_at(step):
    return PEAK * min(1.0, (step + 1) / WARMUP)
'''

CALLBACKS = '''\
"""Sets the rate inside a trainer."""
from transformers import TrainerCallback

from trainlab.training.schedule import rate_at


class Rate(TrainerCallback):
    def on_step_begin(self, args, state, control, optimizer=None, **others):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(state.global_step)
'''

TESTS = """\
from trainlab.training.schedule import rate_at


def test_the_rate_rises_first():
    assert rate_at(0) < rate_at(5)
"""

SETUP = """\
set -e
python -m compileall -q trainlab
"""


def _rows() -> str:
    rows = (
        {"prompt": f"{n} + {n + 1} =", "completion": f" {2 * n + 1}" + " ok" * (n % 5)}
        for n in range(ROWS)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


FIRST: dict[str, str] = {
    ".gitignore": "canary_output/\n__pycache__/\n",
    "README.md": "# trainlab\n\nA small project that trains a model on sums.\n",
    "canary.yaml": CANARY,
    "script.yaml": SCRIPT_CANARY,
    "train.py": TRAIN,
    "setup.sh": SETUP,
    "data/train.jsonl": _rows(),
    "docs/data.md": "# Data\n\nRows are sums with their answers.\n",
    "docs/training.md": "# Training\n\nThe rate rises for two steps.\n",
    "notes/ideas.md": "- try longer sums\n",
    "scripts/longest.py": 'print(max(len(row) for row in open("data/train.jsonl")))\n',
    "tests/test_schedule.py": TESTS,
    "trainlab/__init__.py": "",
    "trainlab/data/__init__.py": "",
    "trainlab/data/collate.py": COLLATE,
    "trainlab/data/store.py": STORE,
    "trainlab/data/text.py": TEXT,
    "trainlab/training/__init__.py": "",
    "trainlab/training/callbacks.py": CALLBACKS,
    "trainlab/training/model.py": MODEL,
    "trainlab/training/schedule.py": SCHEDULE,
}
