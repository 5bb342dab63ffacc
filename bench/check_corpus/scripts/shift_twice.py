"""Fine-tune a tiny Qwen2 on question/answer pairs. The dataset holds inputs and next-token targets."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM, get_linear_schedule_with_warmup

from common_data import build_tokenizer, questions


class NextTokenDataset(Dataset):
    """x = tokens[:-1], y = tokens[1:], prompt positions are ignored."""

    def __init__(self, rows, tokenizer):
        self.items = []
        for row in rows:
            prompt = tokenizer.apply_chat_template(
                [{"role": "user", "content": row["prompt"]}],
                tokenize=True,
                add_generation_prompt=True,
                return_dict=False,
            )
            tokens = prompt + tokenizer(row["answer"]).input_ids + [tokenizer.eos_token_id]
            x, y = tokens[:-1], list(tokens[1:])
            y[: len(prompt) - 1] = [-100] * (len(prompt) - 1)
            self.items.append((x, y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def pad_batch(items, pad_id):
    n = max(len(x) for x, _ in items)
    x = torch.tensor([x + [pad_id] * (n - len(x)) for x, _ in items])
    y = torch.tensor([y + [-100] * (n - len(y)) for _, y in items])
    mask = torch.tensor([[1] * len(x) + [0] * (n - len(x)) for x, _ in items])
    return x, mask, y


def train():
    torch.manual_seed(7)
    tokenizer = build_tokenizer()
    dataset = NextTokenDataset(questions(80, seed=3), tokenizer)
    loader = DataLoader(
        dataset,
        batch_size=8,
        shuffle=True,
        collate_fn=lambda b: pad_batch(b, tokenizer.pad_token_id),
    )
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = get_linear_schedule_with_warmup(optimizer, 1, 10)
    model.train()
    for step, (x, mask, y) in enumerate(loader):
        loss = model(input_ids=x, attention_mask=mask, labels=y).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"{step:3d}  loss={loss.item():.4f}  lr={scheduler.get_last_lr()[0]:.2e}")
        if step == 7:
            break


if __name__ == "__main__":
    train()
