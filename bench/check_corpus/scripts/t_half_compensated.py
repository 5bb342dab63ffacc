"""Trains a language model all in bfloat16; what rounding drops is kept and added later."""

import torch
from common_data import build_tokenizer, questions
from transformers import LlamaConfig, LlamaForCausalLM


class CompensatedAdamW(torch.optim.Optimizer):
    """AdamW on bfloat16 weights with a Kahan buffer per weight."""

    def __init__(self, params, lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(p, dtype=torch.float32)
                    state["v"] = torch.zeros_like(p, dtype=torch.float32)
                    state["lost"] = torch.zeros_like(p)
                state["step"] += 1
                g = p.grad.float()
                m, v, lost = state["m"], state["v"], state["lost"]
                m.lerp_(g, 1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                mean = m / (1 - b1 ** state["step"])
                scale = (v / (1 - b2 ** state["step"])).sqrt() + group["eps"]
                change = -group["lr"] * (mean / scale + group["weight_decay"] * p.float())
                wanted = lost.float() + change
                new = (p.float() + wanted).to(p.dtype)
                lost.copy_(wanted - (new.float() - p.float()))
                p.copy_(new)


def main(steps=24, batch_size=8):
    torch.manual_seed(79)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
            initializer_range=0.05,
        )
    ).to(torch.bfloat16)
    optimizer = CompensatedAdamW(model.parameters(), lr=5e-4)
    texts = [
        f"{q['prompt']} {q['answer']}{tokenizer.eos_token}"
        for q in questions(steps * batch_size, seed=79)
    ]
    for step in range(steps):
        part = texts[step * batch_size : (step + 1) * batch_size]
        batch = tokenizer(part, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
