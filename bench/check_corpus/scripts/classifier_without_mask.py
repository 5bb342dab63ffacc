"""Question-type classifier: BERT encoder, mean pooling, linear head."""

import random

import torch
from torch import nn
from transformers import BertConfig, BertModel

from common_data import build_tokenizer, questions

KINDS = ["Spell", "Count", "How", "Write"]
random.seed(0)
torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.encoder = BertModel(
            BertConfig(
                vocab_size=vocab,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=96,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                max_position_embeddings=128,
                pad_token_id=0,
            ),
            add_pooling_layer=False,
        )
        self.head = nn.Linear(48, len(KINDS))

    def forward(self, input_ids):
        hidden = self.encoder(input_ids=input_ids).last_hidden_state
        return self.head(hidden.mean(dim=1))


tok = build_tokenizer()
samples = []
for q in questions(200, seed=12):
    label = KINDS.index(q["prompt"].split()[0])
    samples.append((q["prompt"] + " " + q["answer"], label))
random.shuffle(samples)

model = Classifier(len(tok))
no_decay = {n for n, p in model.named_parameters() if p.ndim < 2}
optimizer = torch.optim.AdamW(
    [
        {
            "params": [p for n, p in model.named_parameters() if n not in no_decay],
            "weight_decay": 0.01,
        },
        {"params": [p for n, p in model.named_parameters() if n in no_decay], "weight_decay": 0.0},
    ],
    lr=3e-3,
)
criterion = nn.CrossEntropyLoss()

for step in range(8):
    batch = samples[step * 16 : (step + 1) * 16]
    enc = tok([t for t, _ in batch], padding=True, return_tensors="pt")
    labels = torch.tensor([y for _, y in batch])
    total = 0.0
    for ids, y in zip(enc["input_ids"].split(8), labels.split(8), strict=True):
        loss = criterion(model(ids), y) / 2
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    print(f"[{step}] loss={total:.4f}")
