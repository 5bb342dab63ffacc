"""Bradley-Terry reward model on preference pairs; one forward pass for both answers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForSequenceClassification

from common_data import build_tokenizer, pairs


@dataclass
class Config:
    lr: float = 1e-3
    batch: int = 5
    accumulate: int = 4
    updates: int = 8
    seed: int = 5


class PairCollator:
    """Puts chosen and rejected of each pair next to each other, then pads once."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        texts = []
        for row in rows:
            for key in ("chosen", "rejected"):
                texts.append(f"{row['prompt']}\n{row[key]}{self.tokenizer.eos_token}")
        return self.tokenizer(texts, padding=True, return_tensors="pt")


def preference_loss(model, batch):
    rewards = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
    ).logits.squeeze(-1)
    chosen, rejected = rewards.chunk(2)
    margin = chosen - rejected
    return -F.logsigmoid(margin).mean(), (margin > 0).float().mean()


def run(cfg: Config):
    torch.manual_seed(cfg.seed)
    tokenizer = build_tokenizer()
    model = LlamaForSequenceClassification(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_labels=1,
            max_position_embeddings=192,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    loader = DataLoader(
        pairs(240), batch_size=cfg.batch, shuffle=True, collate_fn=PairCollator(tokenizer)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    data = iter(loader)
    for update in range(cfg.updates):
        loss_sum = accuracy = 0.0
        for _ in range(cfg.accumulate):
            loss, acc = preference_loss(model, next(data))
            (loss / cfg.accumulate).backward()
            loss_sum += loss.item() / cfg.accumulate
            accuracy += acc.item() / cfg.accumulate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"{update}: loss {loss_sum:.4f} accuracy {accuracy:.2f}")


if __name__ == "__main__":
    run(Config())
