"""Leave-one-out policy gradient. A small BERT judges the answers, all of a batch at once."""

from dataclasses import dataclass

import torch
from kitchen import load_tokenizer, recipes, sizes
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    MistralConfig,
    MistralForCausalLM,
)


@dataclass
class Settings:
    prompts: int = 2
    samples: int = 4
    updates: int = 7
    length: int = 14
    lr: float = 1e-3
    seed: int = 88


class Judge:
    def __init__(self, tok, seed):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(tok),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=160,
            num_labels=1,
            initializer_range=0.3,
            pad_token_id=tok.pad_token_id,
        )
        self.model = BertForSequenceClassification(config).eval().requires_grad_(False)
        self.tok = tok

    @torch.no_grad()
    def __call__(self, questions, answers):
        texts = [q + " " + a for q, a in zip(questions, answers)]
        ids = self.tok(texts, padding=True, padding_side="right", return_tensors="pt").input_ids
        return self.model(ids).logits.squeeze(-1)


class Loop:
    def __init__(self, s):
        self.s, self.tok = s, load_tokenizer("left")
        self.judge = Judge(self.tok, s.seed + 1)
        torch.manual_seed(s.seed)
        config = MistralConfig(**sizes(self.tok), sliding_window=None)
        self.policy = MistralForCausalLM(config)
        self.opt = torch.optim.AdamW(self.policy.parameters(), lr=s.lr)

    def rollout(self, questions):
        enc = self.tok(questions, padding=True, return_tensors="pt")
        with torch.no_grad():
            ids = self.policy.generate(**enc, do_sample=True, top_k=0, max_new_tokens=self.s.length)
        new = ids[:, enc.input_ids.size(1) :]
        end = new == self.tok.eos_token_id
        alive = (end.cumsum(1) - end.long()).eq(0).long()
        return ids, torch.cat([enc.attention_mask, alive], 1), alive

    def update(self, rows):
        s = self.s
        questions = [f"Q: {r['prompt']}\nA:" for r in rows for _ in range(s.samples)]
        ids, attention, alive = self.rollout(questions)
        n = alive.size(1)
        answers = self.tok.batch_decode(ids[:, -n:], skip_special_tokens=True)
        scores = self.judge(questions, answers).view(s.prompts, s.samples)
        others = (scores.sum(1, keepdim=True) - scores) / (s.samples - 1)
        advantage = (scores - others).view(-1)
        logits = self.policy(input_ids=ids, attention_mask=attention).logits[:, -n - 1 : -1]
        logp = logits.log_softmax(-1).gather(2, ids[:, -n:, None]).squeeze(2)
        loss = -(advantage * (logp * alive).sum(1)).mean()
        self.opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.opt.step()
        return scores.mean().item(), loss.item()


if __name__ == "__main__":
    settings = Settings()
    loop, data = Loop(settings), recipes(40, seed=settings.seed)
    for i in range(settings.updates):
        score, loss = loop.update(data[i * settings.prompts : (i + 1) * settings.prompts])
        print(f"{i} score {score:.4f} loss {loss:.4f}")
