"""Two optimizers: matrices of the blocks get orthogonal steps, all else gets AdamW."""

import torch
from common_data import build_tokenizer, questions
from transformers import LlamaConfig, LlamaForCausalLM


def orthogonal(g, steps=5):
    """Newton-Schulz iteration towards the nearest matrix with orthonormal rows or columns."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(buffer, group["momentum"]))
                scale = max(1, p.shape[0] / p.shape[1]) ** 0.5
                p.add_(update, alpha=-group["lr"] * scale)


def main(steps=20):
    torch.manual_seed(51)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
        )
    )
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    taken = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in taken]
    optimizers = [Muon(matrices), torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95))]
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(o, lambda s: min(1.0, (steps - s) / (0.4 * steps)))
        for o in optimizers
    ]
    texts = [f"{q['prompt']} {q['answer']}{tokenizer.eos_token}" for q in questions(8 * steps, 51)]
    for step in range(steps):
        batch = tokenizer(texts[8 * step : 8 * step + 8], padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels
        ).loss
        loss.backward()
        for optimizer, scheduler in zip(optimizers, schedulers):
            optimizer.step()
            scheduler.step()
        model.zero_grad(set_to_none=True)
        if step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
