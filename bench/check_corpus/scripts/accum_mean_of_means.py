"""Small SFT loop: Llama, AdamW, gradient accumulation."""

import torch
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from common_data import build_tokenizer, questions

MICRO_BATCH = 2
ACCUMULATION = 4
UPDATES = 8
LR = 2e-3

torch.manual_seed(42)
tokenizer = build_tokenizer()


def encode(row):
    prompt = tokenizer(f"<|user|>\n{row['prompt']}</s>\n<|assistant|>\n").input_ids
    answer = tokenizer(row["answer"]).input_ids + [tokenizer.eos_token_id]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def collate(rows):
    width = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n] = torch.tensor(r["input_ids"])
        labels[i, :n] = torch.tensor(r["labels"])
        mask[i, :n] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
    )
)
loader = DataLoader(
    [encode(r) for r in questions(96)],
    batch_size=MICRO_BATCH,
    shuffle=True,
    collate_fn=collate,
    generator=torch.Generator().manual_seed(0),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)

model.train()
step, running = 0, 0.0
for i, batch in enumerate(loader):
    loss = model(**batch).loss
    (loss / ACCUMULATION).backward()
    running += loss.item() / ACCUMULATION
    if (i + 1) % ACCUMULATION:
        continue
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    print(f"step {step} loss {running:.4f} grad_norm {norm:.3f}")
    running = 0.0
    if step == UPDATES:
        break
