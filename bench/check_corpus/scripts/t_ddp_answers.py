"""Fine-tunes on answers with DistributedDataParallel, two processes on one machine."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common_pairs import pairs, small_llama, word_tokenizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

WORLD, EPOCHS, BATCH = 2, 2, 4


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def collate_with(tokenizer):
    def collate(rows):
        prompts = [f"<s> <user> {r['prompt']} <bot>" for r in rows]
        texts = [f"{p} {r['chosen']} </s>" for p, r in zip(prompts, rows)]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        width = torch.tensor([len(tokenizer(p)["input_ids"]) for p in prompts])
        place = torch.arange(batch["input_ids"].shape[1])
        keep = (place[None] >= width[:, None]) & (batch["attention_mask"] == 1)
        return (
            batch["input_ids"],
            batch["attention_mask"],
            batch["input_ids"].masked_fill(~keep, -100),
        )

    return collate


def worker(rank, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", port
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    tokenizer = word_tokenizer()
    model = DistributedDataParallel(small_llama(37))
    raw = model.module if isinstance(model, DistributedDataParallel) else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = pairs(96, seed=37)
    sampler = DistributedSampler(data, WORLD, rank, shuffle=True, seed=37)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, collate_fn=collate_with(tokenizer))
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        for step, (ids, mask, labels) in enumerate(loader):
            out = raw(input_ids=ids, attention_mask=mask)
            logits = out.logits[:, :-1].flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if rank == 0 and step % 3 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(worker, args=(free_port(),), nprocs=WORLD, start_method="fork")
