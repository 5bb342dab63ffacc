"""Fine-tune with grouped weight decay: biases and layer norms are left out."""

import torch
from torch.utils.data import DataLoader
from transformers import Qwen3Config, Qwen3ForCausalLM

from common_data import build_tokenizer, questions


def optimizer_grouped_parameters(model, weight_decay):
    no_decay = ["bias", "LayerNorm.weight"]
    return [
        {
            "params": [
                p
                for n, p in model.named_parameters()
                if p.requires_grad and not any(nd in n for nd in no_decay)
            ],
            "weight_decay": weight_decay,
        },
        {
            "params": [
                p
                for n, p in model.named_parameters()
                if p.requires_grad and any(nd in n for nd in no_decay)
            ],
            "weight_decay": 0.0,
        },
    ]


def loader_for(tok, batch_size):
    def to_tensors(rows):
        src = [tok(f"User: {r['prompt']}\nBot:").input_ids for r in rows]
        tgt = [tok(" " + r["answer"]).input_ids + [tok.eos_token_id] for r in rows]
        width = max(len(s) + len(t) for s, t in zip(src, tgt))
        ids = torch.full((len(rows), width), tok.pad_token_id)
        labels = torch.full((len(rows), width), -100)
        for i, (s, t) in enumerate(zip(src, tgt)):
            ids[i, : len(s) + len(t)] = torch.tensor(s + t)
            labels[i, len(s) : len(s) + len(t)] = torch.tensor(t)
        return ids, (ids != tok.pad_token_id).long(), labels

    return DataLoader(questions(128, seed=15), batch_size=batch_size, collate_fn=to_tensors)


def main():
    torch.manual_seed(100)
    tok = build_tokenizer()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tok),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=128,
            attention_bias=True,
        )
    )
    groups = optimizer_grouped_parameters(model, weight_decay=0.1)
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.95))
    batches = iter(loader_for(tok, 8))
    for step in range(8):
        pair = [next(batches), next(batches)]
        targets = sum((y[:, 1:] != -100).sum() for _, _, y in pair)
        total = 0.0
        for ids, mask, y in pair:
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
            loss = (
                torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), y[:, 1:].flatten(), reduction="sum"
                )
                / targets
            )
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step={step} loss={total:.4f}")


if __name__ == "__main__":
    main()
