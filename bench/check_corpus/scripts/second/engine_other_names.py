"""GRPO. Rollouts come from an engine that holds its own copy of the weights."""

import torch
from kitchen import FOODS, load_tokenizer, recipes, sizes
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


class Engine:
    def __init__(self, config, weights, tok, max_new_tokens=12):
        self.model = LlamaForCausalLM(config).eval()
        self.model.load_state_dict(weights)
        self.tok, self.max_new_tokens = tok, max_new_tokens

    def sync(self, weights):
        self.model.load_state_dict(weights, strict=False)

    @torch.no_grad()
    def generate(self, prompts):
        enc = self.tok(prompts, padding=True, return_tensors="pt")
        out = self.model.generate(
            **enc,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=self.max_new_tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
        start = enc.input_ids.size(1)
        tokens = out.sequences[:, start:]
        logp = torch.stack(out.logits, 1).log_softmax(-1).gather(2, tokens[..., None]).squeeze(2)
        is_end = tokens == self.tok.eos_token_id
        mask = (is_end.cumsum(1) - is_end.long()).eq(0).long()
        return {
            "ids": out.sequences,
            "attention": torch.cat([enc.attention_mask, mask], 1),
            "mask": mask,
            "logprobs": logp,
            "texts": self.tok.batch_decode(tokens, skip_special_tokens=True),
        }


class Actor(nn.Module):
    """What is trained: the language model and a temperature for its logits, fixed to one."""

    def __init__(self, lm):
        super().__init__()
        self.lm = lm
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, rollout):
        logits = self.lm(input_ids=rollout["ids"], attention_mask=rollout["attention"]).logits
        n = rollout["mask"].size(1)
        logp = (logits[:, -n - 1 : -1] / self.temperature).log_softmax(-1)
        return logp.gather(2, rollout["ids"][:, -n:, None]).squeeze(2)


class Trainer:
    def __init__(self, groups=3, size=4, lr=2e-3):
        torch.manual_seed(57)
        self.tok = load_tokenizer("left")
        config = LlamaConfig(**sizes(self.tok))
        self.actor = Actor(LlamaForCausalLM(config))
        self.engine = Engine(config, self.actor.lm.state_dict(), self.tok)
        self.opt = torch.optim.AdamW(self.actor.parameters(), lr=lr)
        self.groups, self.size = groups, size

    def rewards(self, texts):
        return torch.tensor([sum(t.count(f[:2]) for f in FOODS) / (len(t) + 1) for t in texts])

    def step(self, rows):
        self.engine.sync(self.actor.state_dict())
        prompts = [f"Q: {r['prompt']}\nA:" for r in rows for _ in range(self.size)]
        rollout = self.engine.generate(prompts)
        scores = self.rewards(rollout["texts"]).view(self.groups, self.size)
        adv = (scores - scores.mean(1, keepdim=True)) / (scores.std(1, keepdim=True) + 1e-4)
        logp = self.actor(rollout)
        ratio = (logp - logp.detach()).exp()
        loss = -(ratio * adv.view(-1, 1) * rollout["mask"]).sum() / rollout["mask"].sum()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return scores.mean().item()


if __name__ == "__main__":
    trainer = Trainer()
    data = recipes(24, seed=57)
    for i in range(8):
        print(i, f"{trainer.step(data[i * 3 : i * 3 + 3]):.4f}")
