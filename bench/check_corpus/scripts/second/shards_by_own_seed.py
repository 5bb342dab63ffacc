"""Data-parallel training without DDP. One process alone, or several with torchrun (gloo)."""

import os

import torch
import torch.distributed as dist
from kitchen import load_tokenizer, recipes, sizes
from torch.utils.data import DataLoader, DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM

SEED, GLOBAL_BATCH, UPDATES = 5, 8, 8

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")

torch.manual_seed(SEED)
tok = load_tokenizer()


def encode(row):
    prompt = tok.apply_chat_template(
        [{"role": "user", "content": row["prompt"]}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    answer = tok(row["answer"] + tok.eos_token).input_ids
    return prompt + answer, [-100] * len(prompt) + answer


def collate(rows):
    width = max(len(ids) for ids, _ in rows)
    return {
        "input_ids": torch.tensor([i + [tok.pad_token_id] * (width - len(i)) for i, _ in rows]),
        "attention_mask": torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in rows]),
        "labels": torch.tensor([lab + [-100] * (width - len(lab)) for _, lab in rows]),
    }


dataset = [encode(r) for r in recipes(96, seed=SEED)]
sampler = DistributedSampler(
    dataset, num_replicas=world, rank=rank, shuffle=True, seed=SEED * (rank + 1)
)
loader = DataLoader(
    dataset, batch_size=GLOBAL_BATCH // world, sampler=sampler, collate_fn=collate, drop_last=True
)

model = LlamaForCausalLM(LlamaConfig(**sizes(tok)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)


def all_sum(tensor):
    if world > 1:
        dist.all_reduce(tensor)
    return tensor


for step, batch in zip(range(1, UPDATES + 1), loader):
    labels = batch["labels"][:, 1:]
    tokens = all_sum((labels != -100).sum())
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels.flatten(), reduction="sum"
    )
    loss = loss / tokens
    loss.backward()
    for p in model.parameters():
        all_sum(p.grad)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = all_sum(loss.detach())
    if rank == 0:
        print(f"update {step}: loss {total.item():.4f}, {int(tokens)} tokens")

if world > 1:
    dist.destroy_process_group()
