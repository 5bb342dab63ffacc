"""SFT with our own packing: short examples share one row of 128 tokens, positions restart."""

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common_data import build_tokenizer, questions

ROW = 128


def tokenize(tok, row):
    p = tok.apply_chat_template(
        [{"role": "user", "content": row["prompt"]}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    a = tok(row["answer"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
    return p + a, [-100] * len(p) + a


def pack(examples, pad):
    """First fit; returns rows of ids, labels and positions."""
    bins = []
    for ids, labels in sorted(examples, key=lambda e: -len(e[0])):
        for b in bins:
            if len(b["ids"]) + len(ids) <= ROW:
                break
        else:
            b = {"ids": [], "labels": [], "pos": []}
            bins.append(b)
        b["ids"] += ids
        b["labels"] += labels
        b["pos"] += range(len(ids))
    for b in bins:
        n = ROW - len(b["ids"])
        b["mask"] = [1] * len(b["ids"]) + [0] * n
        b["ids"] += [pad] * n
        b["labels"] += [-100] * n
        b["pos"] += range(n)
    return bins


tok = build_tokenizer()
torch.manual_seed(1)
rows = pack([tokenize(tok, r) for r in questions(160, seed=4)], tok.pad_token_id)
random.Random(0).shuffle(rows)
print(f"packed 160 examples into {len(rows)} rows")

model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tok),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)

cursor = 0
for update in range(6):
    micro_batches = []
    for _ in range(2):
        part = [rows[(cursor + j) % len(rows)] for j in range(2)]
        cursor += 2
        micro_batches.append(
            {
                "input_ids": torch.tensor([b["ids"] for b in part]),
                "attention_mask": torch.tensor([b["mask"] for b in part]),
                "position_ids": torch.tensor([b["pos"] for b in part]),
                "labels": torch.tensor([b["labels"] for b in part]),
            }
        )
    n = sum(int((m["labels"] != -100).sum()) for m in micro_batches)
    total = 0.0
    for m in micro_batches:
        loss = model(**m, num_items_in_batch=n).loss
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    print(f"update {update + 1}/6 loss {total:.4f}")
