"""Accumulates sums over tokens by hand and divides gradients once, by all tokens of the step."""

import torch
from common_data import build_tokenizer, questions
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

ACCUMULATE, LR = 4, 2e-3


def main():
    torch.manual_seed(53)
    tokenizer = build_tokenizer()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=128,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )

    def collate(rows):
        prompts = [f"{r['prompt']}\n" for r in rows]
        texts = [p + r["answer"] + tokenizer.eos_token for p, r in zip(prompts, rows)]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        width = torch.tensor([len(tokenizer(p)["input_ids"]) for p in prompts])
        place = torch.arange(batch["input_ids"].shape[1])
        keep = (place[None] >= width[:, None]) & (batch["attention_mask"] == 1)
        return batch["input_ids"], batch["attention_mask"], keep

    loader = DataLoader(
        questions(224, seed=53), batch_size=4, shuffle=True, collate_fn=collate, drop_last=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    tokens = loss_sum = 0
    for i, (ids, mask, keep) in enumerate(loader):
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        )
        loss = (losses * keep[:, 1:]).sum()
        loss.backward()
        tokens += int(keep[:, 1:].sum())
        loss_sum += loss.item()
        if (i + 1) % ACCUMULATE:
            continue
        for parameter in model.parameters():
            parameter.grad /= tokens
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {i // ACCUMULATE} loss {loss_sum / tokens:.4f} norm {norm:.3f}")
        tokens = loss_sum = 0


if __name__ == "__main__":
    main()
