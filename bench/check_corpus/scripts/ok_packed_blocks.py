"""Packs documents into one row with a block-diagonal causal mask and positions that restart."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common_data import build_tokenizer, questions

LENGTH = 96


def greedy_pack(docs):
    row, size = [], 0
    for d in docs:
        if size + len(d["ids"]) > LENGTH:
            yield row
            row, size = [], 0
        row.append(d)
        size += len(d["ids"])
    if row:
        yield row


def to_row(docs, pad):
    ids, labels, pos, doc = [], [], [], []
    for k, d in enumerate(docs):
        ids += d["ids"]
        # the first token of a document is not predicted from the one before it
        labels += [-100] + d["labels"][1:]
        pos += range(len(d["ids"]))
        doc += [k] * len(d["ids"])
    n = LENGTH - len(ids)
    return ids + [pad] * n, labels + [-100] * n, pos + [0] * n, doc + list(range(-1, -1 - n, -1))


def block_mask(doc):
    """(batch, 1, time, time), 0 where attention is allowed; a padding token sees itself."""
    same = doc[:, :, None] == doc[:, None, :]
    causal = torch.ones(doc.size(1), doc.size(1), dtype=torch.bool).tril()
    forbidden = ~(same & causal)[:, None]
    return torch.zeros(forbidden.shape).masked_fill(forbidden, torch.finfo(torch.float32).min)


torch.manual_seed(0)
tok = build_tokenizer()
docs = []
for q in questions(180, seed=44):
    p = tok(f"Q {q['prompt']}\nA ").input_ids
    a = tok(q["answer"]).input_ids + [tok.eos_token_id]
    docs.append({"ids": p + a, "labels": [-100] * len(p) + a})
rows = [to_row(r, tok.pad_token_id) for r in greedy_pack(docs)]
print(len(docs), "documents in", len(rows), "rows")

model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tok),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(7):
    picked = rows[step * 4 : step * 4 + 4]
    halves = [[torch.tensor(x) for x in zip(*picked[i : i + 2])] for i in (0, 2)]
    n = sum((labels != -100).sum() for _, labels, _, _ in halves)
    total = 0.0
    for ids, labels, pos, doc in halves:
        out = model(
            input_ids=ids,
            attention_mask=block_mask(doc),
            position_ids=pos,
            labels=labels,
            num_items_in_batch=n,
            use_cache=False,
        )
        out.loss.backward()
        total += out.loss.item()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {total:.4f}")
