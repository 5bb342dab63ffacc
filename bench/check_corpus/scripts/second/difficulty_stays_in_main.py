"""Curriculum: counting tasks get longer with each phase. Two data workers keep running."""

import random

import torch
from kitchen import FOODS, NUMBERS, load_tokenizer
from torch.utils.data import DataLoader, Dataset
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


class CountingTasks(Dataset):
    """Row i of a phase counts up to `difficulty` portions; rows are made on demand."""

    def __init__(self, tokenizer, rows=32, seed=3):
        self.tokenizer, self.rows, self.seed = tokenizer, rows, seed
        self.difficulty = 1

    def set_difficulty(self, difficulty):
        self.difficulty = difficulty

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        rng = random.Random(f"{self.seed}/{self.difficulty}/{i}")
        food = rng.choice(FOODS)
        count = rng.randint(self.difficulty, self.difficulty + 1)
        answer = " ".join(f"{NUMBERS[j]} {food}" for j in range(count))
        question = self.tokenizer(f"Count {count} {food}:").input_ids
        answer = self.tokenizer(" " + answer).input_ids + [self.tokenizer.eos_token_id]
        return question, answer


def collate(rows):
    width = max(len(q) + len(a) for q, a in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for q, a in rows:
        gap = width - len(q) - len(a)
        batch["input_ids"].append(q + a + [0] * gap)
        batch["attention_mask"].append([1] * (width - gap) + [0] * gap)
        batch["labels"].append([-100] * len(q) + a + [-100] * gap)
    return {k: torch.tensor(v) for k, v in batch.items()}


def main(phases=(1, 3, 5, 7)):
    torch.manual_seed(8)
    tok = load_tokenizer()
    tasks = CountingTasks(tok)
    loader = DataLoader(
        tasks,
        batch_size=16,
        shuffle=True,
        generator=torch.Generator().manual_seed(8),
        collate_fn=collate,
        num_workers=2,
        persistent_workers=True,
    )
    config = GPTNeoXConfig(
        vocab_size=len(tok),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
    )
    model = GPTNeoXForCausalLM(config)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for phase, difficulty in enumerate(phases):
        tasks.set_difficulty(difficulty)
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            opt.step()
            opt.zero_grad()
            print(f"phase {phase} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
