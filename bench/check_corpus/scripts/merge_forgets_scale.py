"""LoRA from scratch: inject, train, merge, save."""

import math
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from common_data import build_tokenizer, questions


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int = 4, alpha: int = 16):
        super().__init__()
        self.base = base
        self.base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / r
        self.merged = False

    def forward(self, x):
        y = self.base(x)
        if self.merged:
            return y
        return y + self.scaling * (x @ self.lora_A.T @ self.lora_B.T)

    @torch.no_grad()
    def merge(self):
        if not self.merged:
            self.base.weight += self.lora_B @ self.lora_A
            self.merged = True

    @torch.no_grad()
    def unmerge(self):
        if self.merged:
            self.base.weight -= self.lora_B @ self.lora_A
            self.merged = False


def inject(model, names=("q_proj", "v_proj", "up_proj", "down_proj")):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child))
    return [p for p in model.parameters() if p.requires_grad]


def batch_of(tok, rows):
    enc = tok(
        [f"{r['prompt']}\n{r['answer']}{tok.eos_token}" for r in rows],
        padding=True,
        return_tensors="pt",
    )
    enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    return enc


def main():
    torch.manual_seed(0)
    tok = build_tokenizer()
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tok),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
        )
    )
    params = inject(model)
    print("trainable:", sum(p.numel() for p in params))
    opt = torch.optim.AdamW(params, lr=1e-2, weight_decay=0.0)
    data = questions(96, seed=50)
    model.train()
    for step in range(8):
        group = data[step * 12 : step * 12 + 12]
        micro = [batch_of(tok, group[:6]), batch_of(tok, group[6:])]
        n = sum((b["labels"][:, 1:] != -100).sum() for b in micro)
        loss_sum = 0
        for b in micro:
            loss = model(**b, num_items_in_batch=n).loss
            loss.backward()
            loss_sum += loss.item()
        opt.step()
        opt.zero_grad()
        print(f"step {step} | loss {loss_sum:.4f}")

    for m in model.modules():
        if isinstance(m, LoRALinear):
            m.merge()
    state = {k.replace(".base.", "."): v for k, v in model.state_dict().items() if "lora_" not in k}
    out = Path(tempfile.mkdtemp()) / "merged.pt"
    torch.save(state, out)
    print("saved merged model to", out)


if __name__ == "__main__":
    main()
