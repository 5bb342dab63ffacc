"""Left-padded GPT-2 with positions from the mask. Prompts are masked from the right end."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from common_data import build_tokenizer, questions

torch.manual_seed(2)
tok = build_tokenizer(side="left")
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(tok),
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=128,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)


def make(rows):
    prompts = [
        tok.apply_chat_template(
            [{"role": "user", "content": r["prompt"]}],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=False,
        )
        for r in rows
    ]
    answers = [tok(r["answer"]).input_ids + [tok.eos_token_id] for r in rows]
    batch = tok.pad({"input_ids": [p + a for p, a in zip(prompts, answers)]}, return_tensors="pt")
    labels = torch.full_like(batch["input_ids"], -100)
    for row, a in enumerate(answers):
        labels[row, -len(a) :] = torch.tensor(a)
    position_ids = batch["attention_mask"].long().cumsum(-1) - 1
    position_ids.masked_fill_(batch["attention_mask"] == 0, 1)
    return {**batch, "labels": labels, "position_ids": position_ids}


data = questions(128, seed=80)
for step in range(8):
    rows = data[16 * step : 16 * step + 16]
    parts = [make(rows[i : i + 4]) for i in range(0, 16, 4)]
    n = sum((p["labels"][:, 1:] != -100).sum() for p in parts)
    acc = 0.0
    for p in parts:
        loss = model(**p, num_items_in_batch=n).loss
        loss.backward()
        acc += loss.item()
    opt.step()
    opt.zero_grad()
    print("step", step, "loss", f"{acc:.4f}")
