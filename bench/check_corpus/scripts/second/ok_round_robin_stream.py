"""Streams ready batches of one length bucket each; worker k makes every second batch of them."""

import torch
from kitchen import load_tokenizer, recipes, sizes
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import MistralConfig, MistralForCausalLM


class BucketedBatches(IterableDataset):
    def __init__(self, tok, rows, size=8, seed=0):
        self.tok, self.rows, self.size, self.seed = tok, rows, size, seed

    def plan(self):
        """The batches of an epoch as row numbers, the same in every worker."""
        gen = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(self.rows), generator=gen).tolist()
        pools = [order[i : i + 4 * self.size] for i in range(0, len(order), 4 * self.size)]
        batches = []
        for pool in pools:
            pool.sort(key=lambda i: len(self.rows[i]["answer"]))
            cut = [pool[i : i + self.size] for i in range(0, len(pool), self.size)]
            batches += [cut[i] for i in torch.randperm(len(cut), generator=gen).tolist()]
        return batches

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for batch in self.plan()[first::stride]:
            yield self.make([self.rows[i] for i in batch])

    def make(self, rows):
        parts = [
            (
                self.tok(f"{r['prompt']}\n").input_ids,
                self.tok(r["answer"] + self.tok.eos_token).input_ids,
            )
            for r in rows
        ]
        width = max(len(p) + len(a) for p, a in parts)
        gaps = [width - len(p) - len(a) for p, a in parts]
        pad = self.tok.pad_token_id
        return {
            "input_ids": torch.tensor([p + a + [pad] * g for (p, a), g in zip(parts, gaps)]),
            "attention_mask": torch.tensor([[1] * (width - g) + [0] * g for g in gaps]),
            "labels": torch.tensor(
                [[-100] * len(p) + a + [-100] * g for (p, a), g in zip(parts, gaps)]
            ),
        }


def main():
    torch.manual_seed(145)
    tok = load_tokenizer()
    stream = BucketedBatches(tok, recipes(96, seed=145))
    loader = DataLoader(stream, batch_size=None, num_workers=2)
    model = MistralForCausalLM(MistralConfig(**sizes(tok), sliding_window=16))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, batch in enumerate(loader):
        if step == 8:
            break
        loss = model(**batch).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        print(step, tuple(batch["input_ids"].shape), round(loss.item(), 4))


if __name__ == "__main__":
    main()
