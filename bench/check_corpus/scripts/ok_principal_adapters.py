"""PiSSA by hand: the adapter starts at the largest singular directions, the residual is frozen."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from common_data import build_tokenizer, questions


class PrincipalLinear(nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        weight = linear.weight.data
        u, s, vt = torch.linalg.svd(weight, full_matrices=False)
        root = s[:rank].sqrt()
        self.up = nn.Parameter(u[:, :rank] * root)
        self.down = nn.Parameter(root[:, None] * vt[:rank])
        self.residual = nn.Parameter(weight - self.up.data @ self.down.data, requires_grad=False)

    def forward(self, x):
        return x @ self.residual.T + (x @ self.down.T) @ self.up.T

    def merged(self):
        linear = nn.Linear(self.residual.size(1), self.residual.size(0), bias=False)
        linear.weight.data = self.residual.data + self.up.data @ self.down.data
        return linear


def adapt(model, rank=4):
    for p in model.parameters():
        p.requires_grad = False
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, PrincipalLinear(getattr(layer.self_attn, name), rank))


def merge(model):
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, getattr(layer.self_attn, name).merged())


def batch(tok, rows):
    prompts = [tok(r["prompt"] + "\n").input_ids for r in rows]
    full = [p + tok(r["answer"]).input_ids + [tok.eos_token_id] for p, r in zip(prompts, rows)]
    enc = tok.pad({"input_ids": full}, return_tensors="pt")
    labels = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    for row, p in zip(labels, prompts):
        row[: len(p)] = -100
    return {**enc, "labels": labels}


def main():
    torch.manual_seed(0)
    tok = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tok),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
            initializer_range=0.1,
        )
    )
    probe = batch(tok, questions(4, seed=1))
    before = model(**probe).loss.item()
    adapt(model)
    print(f"before {before:.5f}, with adapters {model(**probe).loss.item():.5f}")
    opt = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0
    )
    data = questions(96, seed=2)
    for step in range(8):
        parts = [batch(tok, data[step * 12 + i : step * 12 + i + 6]) for i in (0, 6)]
        n = sum((p["labels"][:, 1:] != -100).sum() for p in parts)
        losses = []
        for p in parts:
            loss = model(**p, num_items_in_batch=n).loss
            loss.backward()
            losses.append(loss.item())
        opt.step()
        opt.zero_grad()
        print(f"step {step} loss {sum(losses):.4f}")
    trained = model(**probe).loss.item()
    merge(model)
    print(f"trained {trained:.5f}, merged {model(**probe).loss.item():.5f}")


if __name__ == "__main__":
    main()
