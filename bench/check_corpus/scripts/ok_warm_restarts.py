"""SGDR-like schedule: the first update has LR 0, then cosine cycles of growing length."""

import math

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common_data import build_tokenizer, questions

PEAK, FLOOR = 4e-3, 1e-4


class WarmRestarts:
    """LR per update: 0 | cycle of 3 | cycle of 6 | ..."""

    def __init__(self, optimizer, first=3, factor=2):
        self.optimizer, self.first, self.factor = optimizer, first, factor
        self.t = 0
        self.apply()

    def lr(self, t):
        if t == 0:
            return 0.0
        t, length = t - 1, self.first
        while t >= length:
            t, length = t - length, length * self.factor
        return FLOOR + 0.5 * (PEAK - FLOOR) * (1 + math.cos(math.pi * t / length))

    def apply(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr(self.t) * group.get("lr_scale", 1.0)

    def step(self):
        self.t += 1
        self.apply()

    def state_dict(self):
        return {"t": self.t}

    def load_state_dict(self, state):
        self.t = state["t"]
        self.apply()


torch.manual_seed(0)
tokenizer = build_tokenizer()
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
    )
)
head = [p for n, p in model.named_parameters() if n.startswith("lm_head")]
body = [p for n, p in model.named_parameters() if not n.startswith("lm_head")]
optimizer = torch.optim.AdamW(
    [{"params": body}, {"params": head, "lr_scale": 0.5}], weight_decay=0.0
)
schedule = WarmRestarts(optimizer)

stream = [
    t for q in questions(300) for t in tokenizer(q["prompt"] + " " + q["answer"] + "</s>").input_ids
]
blocks = torch.tensor(stream[: len(stream) // 64 * 64]).view(-1, 64)
for update in range(8):
    used = schedule.lr(schedule.t)
    total = 0.0
    for micro in range(2):
        x = blocks[(update * 2 + micro) * 4 :][:4]
        loss = model(input_ids=x, labels=x).loss / 2
        loss.backward()
        total += loss.item()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"update {update} lr {used:.2e} loss {total:.4f}")
