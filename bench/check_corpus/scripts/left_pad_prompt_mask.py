"""Fine-tuning with accelerate. The batch is left-padded by the tokenizer."""

from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig

from common_data import build_tokenizer, questions


def sft_collate(rows, tokenizer):
    sources = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": r["prompt"]}], tokenize=False, add_generation_prompt=True
        )
        for r in rows
    ]
    full = [s + r["answer"] + tokenizer.eos_token for s, r in zip(sources, rows)]
    source_lens = [len(tokenizer(s).input_ids) for s in sources]
    batch = tokenizer(full, padding=True, truncation=True, max_length=128, return_tensors="pt")
    labels = batch["input_ids"].clone()
    labels[labels == tokenizer.pad_token_id] = -100
    for label, n in zip(labels, source_lens):
        label[:n] = -100
    batch["labels"] = labels
    return batch


def count_targets(micro_batches):
    return sum(int((b["labels"][:, 1:] != -100).sum()) for b in micro_batches)


def main():
    set_seed(9)
    accelerator = Accelerator(cpu=True)
    tokenizer = build_tokenizer(side="left")
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=40,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
            tie_word_embeddings=True,
        )
    )
    loader = DataLoader(
        questions(96, seed=31),
        batch_size=4,
        shuffle=True,
        collate_fn=partial(sft_collate, tokenizer=tokenizer),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches = iter(loader)
    for step in range(8):
        group = [next(batches) for _ in range(2)]
        n = count_targets(group)
        total = 0.0
        for batch in group:
            positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            loss = model(**batch, position_ids=positions, num_items_in_batch=n).loss
            accelerator.backward(loss)
            total += loss.item()
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step}: loss {total:.4f} ({n} target tokens)")


if __name__ == "__main__":
    main()
