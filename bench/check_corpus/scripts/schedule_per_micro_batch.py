"""accelerate: cosine schedule over 8 updates, 4 micro-batches per update."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import Qwen2Config, Qwen2ForCausalLM, get_cosine_schedule_with_warmup, set_seed

from common_data import build_tokenizer, questions

hps = {
    "learning_rate": 3e-3,
    "warmup_updates": 2,
    "max_train_updates": 8,
    "gradient_accumulation_steps": 4,
    "per_device_batch_size": 2,
    "seed": 8,
}


def training_function(hps):
    set_seed(hps["seed"])
    accelerator = Accelerator(
        gradient_accumulation_steps=hps["gradient_accumulation_steps"], cpu=True
    )
    tokenizer = build_tokenizer()

    # One long text, cut into blocks of equal length.
    text = [t for r in questions(400) for t in tokenizer(f"{r['prompt']} {r['answer']}").input_ids]
    blocks = torch.tensor(text[: len(text) // 48 * 48]).view(-1, 48)

    def collate_fn(rows):
        ids = torch.stack(rows)
        return {"input_ids": ids, "labels": ids.clone()}

    loader = DataLoader(
        list(blocks), shuffle=True, collate_fn=collate_fn, batch_size=hps["per_device_batch_size"]
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
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=hps["learning_rate"])
    lr_scheduler = get_cosine_schedule_with_warmup(
        optimizer, hps["warmup_updates"], hps["max_train_updates"]
    )
    # The scheduler counts updates and not samples, so it is not prepared.
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    done = 0
    for batch in loader:
        with accelerator.accumulate(model):
            output = model(**batch)
            accelerator.backward(output.loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            done += 1
            print(f"update {done}: loss {output.loss.item():.4f}")
        if done == hps["max_train_updates"]:
            break


if __name__ == "__main__":
    training_function(hps)
