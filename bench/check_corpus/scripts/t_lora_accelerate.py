"""LoRA on a small language model in a loop of its own, with accelerate."""

import torch
from accelerate import Accelerator
from common_data import build_tokenizer, questions
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

MAX_GRAD_NORM = 0.3


def collate(rows):
    ids = [torch.tensor(r["ids"]) for r in rows]
    labels = [torch.tensor(r["labels"]) for r in rows]
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones_like(i) for i in ids], batch_first=True)
    return {
        "input_ids": pad(ids, batch_first=True),
        "attention_mask": mask,
        "labels": pad(labels, batch_first=True, padding_value=-100),
    }


def encode(row, tokenizer):
    prompt = tokenizer(f"Q: {row['prompt']}\nA:")["input_ids"]
    answer = tokenizer(" " + row["answer"])["input_ids"] + [tokenizer.eos_token_id]
    return {"ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(5)
    tokenizer = build_tokenizer()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=128,
            n_embd=64,
            n_layer=2,
            n_head=4,
            initializer_range=0.2,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    model = get_peft_model(
        model,
        LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=["c_attn", "c_proj"]),
    )
    lora_layers = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = torch.optim.AdamW(lora_layers, lr=3e-3, weight_decay=1e-2)
    loader = DataLoader(
        [encode(q, tokenizer) for q in questions(120, seed=5)],
        batch_size=4,
        shuffle=True,
        collate_fn=collate,
    )
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=2, num_training_steps=30)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    model.train()
    for epoch in range(2):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(lora_layers, MAX_GRAD_NORM)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % 5 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
