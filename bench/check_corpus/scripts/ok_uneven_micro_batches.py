"""Micro-batches of 1 to 9 rows by token budget, from a stream split over two workers."""

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from common_data import build_tokenizer, questions

UPDATES, MICRO, BUDGET = 8, 3, 160


class Stream(IterableDataset):
    """Groups rows until a padded micro-batch would exceed the budget; shards groups over workers."""

    def __init__(self, tokenizer, rows):
        self.rows = [
            tokenizer(r["prompt"] + "\n" + r["answer"]).input_ids + [tokenizer.eos_token_id]
            for r in rows
        ]

    def groups(self):
        group = []
        for row in self.rows:
            width = max(map(len, [*group, row]))
            if group and width * (len(group) + 1) > BUDGET:
                yield group
                group = []
            group.append(row)

    def __iter__(self):
        info = get_worker_info()
        k, n = (info.id, info.num_workers) if info else (0, 1)
        for i, group in enumerate(self.groups()):
            if i % n == k:
                yield group


def to_batch(group):
    width = max(map(len, group))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in group])
    return ids, (ids != 0).long()


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    tok = build_tokenizer()
    rows = questions(200, seed=33)
    for i in range(0, 200, 7):
        rows[i]["answer"] = " ".join([rows[i]["answer"]] * 4)
    loader = DataLoader(Stream(tok, rows), batch_size=None, num_workers=2, collate_fn=to_batch)
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=len(tok),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=512,
            rotary_pct=0.5,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    it = iter(loader)
    for update in range(UPDATES):
        micro = [next(it) for _ in range(MICRO)]
        tokens = sum(int(m[:, 1:].sum()) for _, m in micro)
        total = 0.0
        for ids, mask in micro:
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
            targets = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.size(-1)), targets.reshape(-1), reduction="sum"
            )
            (loss / tokens).backward()
            total += loss.item() / tokens
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        print(update, [tuple(i.shape) for i, _ in micro], f"loss {total:.4f}")


if __name__ == "__main__":
    main()
