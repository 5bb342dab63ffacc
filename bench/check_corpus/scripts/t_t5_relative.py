"""A small T5 with Adafactor, which finds its own step size; sequences start with padding."""

import torch
from common_data import build_tokenizer, questions
from torch.utils.data import DataLoader
from transformers import Adafactor, T5Config, T5ForConditionalGeneration


def main():
    torch.manual_seed(9)
    tokenizer = build_tokenizer()
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=pad,
            pad_token_id=pad,
            eos_token_id=eos,
        )
    )

    def collate(rows):
        source = [torch.tensor(tokenizer(r["prompt"])["input_ids"] + [eos]) for r in rows]
        target = [torch.tensor(tokenizer(r["answer"])["input_ids"] + [eos]) for r in rows]
        stack = torch.nn.utils.rnn.pad_sequence
        return {
            "input_ids": stack(source, batch_first=True, padding_value=pad),
            "attention_mask": stack([torch.ones_like(s) for s in source], batch_first=True),
            "labels": stack(target, batch_first=True, padding_value=-100),
        }

    loader = DataLoader(questions(160, seed=9), batch_size=8, shuffle=True, collate_fn=collate)
    optimizer = Adafactor(
        model.parameters(), lr=None, scale_parameter=True, relative_step=True, warmup_init=False
    )
    model.train()
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
