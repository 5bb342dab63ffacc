"""Smoothed labels, dropout, a teacher that stays in eval mode; full state in every checkpoint.

Restarts from $RUN_DIR/state.pt (default ./run_resumes) when it exists; removed at the end.
"""

import os
import shutil
from contextlib import contextmanager

import torch
from torch import nn

from common_data import build_tokenizer, questions

RUN_DIR = os.environ.get("RUN_DIR", "run_resumes")
STATE = os.path.join(RUN_DIR, "state.pt")
UPDATES, EVERY = 8, 2


class Net(nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.teacher = nn.Embedding(vocab, dim)
        self.teacher.requires_grad_(False)
        self.frozen_norm = nn.BatchNorm1d(dim, affine=False)
        self.frozen_norm.eval()  # statistics of the teacher; never updated
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(dim, vocab)

    def train(self, mode=True):
        super().train(mode)
        self.frozen_norm.eval()
        return self

    def forward(self, x):
        t = self.frozen_norm(self.teacher(x).transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(self.drop(self.embed(x) + 0.1 * t))
        return self.out(self.drop(h))


@contextmanager
def evaluation_mode(model):
    modes = {m: m.training for m in model.modules()}
    rng = torch.get_rng_state()
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, training in modes.items():
            m.training = training
        torch.set_rng_state(rng)


class Order:
    """Endless shuffled row numbers; its state is the generator's at the epoch's start, and a cursor."""

    def __init__(self, n, seed):
        self.n, self.gen = n, torch.Generator().manual_seed(seed)
        self.new_epoch()

    def new_epoch(self):
        self.at_start = self.gen.get_state()
        self.rows, self.cursor = torch.randperm(self.n, generator=self.gen).tolist(), 0

    def take(self, k):
        if self.cursor + k > self.n:
            self.new_epoch()
        self.cursor += k
        return self.rows[self.cursor - k : self.cursor]

    def state_dict(self):
        return {"at_start": self.at_start, "cursor": self.cursor}

    def load_state_dict(self, state):
        self.gen.set_state(state["at_start"])
        self.new_epoch()
        self.cursor = state["cursor"]


def loss_of(model, x, smoothing=0.1):
    return nn.functional.cross_entropy(
        model(x[:, :-1]).transpose(1, 2),
        x[:, 1:],
        ignore_index=0,
        reduction="sum",
        label_smoothing=smoothing,
    )


def main():
    torch.manual_seed(3)
    tok = build_tokenizer()
    rows = [
        torch.tensor(tok(f"{q['prompt']} {q['answer']}</s>").input_ids)
        for q in questions(120, seed=55)
    ]
    rows, held_out = rows[:100], rows[100:]
    pad = lambda part: nn.utils.rnn.pad_sequence(part, batch_first=True)  # noqa: E731
    model = Net(len(tok))
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, total_steps=UPDATES + 1)
    order, step = Order(len(rows), seed=1), 0
    stateful = {"model": model, "opt": opt, "sched": sched, "order": order}
    model.train()
    if os.path.exists(STATE):
        saved = torch.load(STATE, weights_only=False)
        for name, thing in stateful.items():
            thing.load_state_dict(saved[name])
        torch.set_rng_state(saved["rng"])
        step = saved["step"]
    while step < UPDATES:
        parts = [pad([rows[i] for i in order.take(8)]) for _ in range(2)]
        n = sum(int((x[:, 1:] != 0).sum()) for x in parts)
        total = 0.0
        for x in parts:
            loss = loss_of(model, x) / n
            loss.backward()
            total += loss.item()
        opt.step()
        sched.step()
        opt.zero_grad()
        step += 1
        print(f"step {step} loss {total:.4f}", flush=True)
        if step % EVERY == 0:
            with evaluation_mode(model):
                x = pad(held_out)
                print(
                    f"  held out {loss_of(model, x, 0.0).item() / int((x[:, 1:] != 0).sum()):.4f}"
                )
            os.makedirs(RUN_DIR, exist_ok=True)
            state = {k: v.state_dict() for k, v in stateful.items()}
            torch.save({**state, "rng": torch.get_rng_state(), "step": step}, STATE)
    shutil.rmtree(RUN_DIR, ignore_errors=True)


if __name__ == "__main__":
    main()
