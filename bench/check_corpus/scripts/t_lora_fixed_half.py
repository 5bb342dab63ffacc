"""LoRA whose first matrices stay as they were drawn; only the second ones are trained."""

import torch
from common_data import build_tokenizer
from peft import LoraConfig, get_peft_model
from t_lora_accelerate import collate, encode
from common_data import questions
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler


def main(steps=24):
    torch.manual_seed(73)
    tokenizer = build_tokenizer()
    base = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=128,
            n_embd=64,
            n_layer=2,
            n_head=4,
            initializer_range=0.1,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=8,
        lora_alpha=32,
        target_modules=["c_attn", "c_proj", "c_fc"],
        fan_in_fan_out=True,
    )
    model = get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad = False
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=2, num_training_steps=steps)
    rows = [encode(q, tokenizer) for q in questions(8 * steps, seed=73)]
    loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)
    model.train()
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
