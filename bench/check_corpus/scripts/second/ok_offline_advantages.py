"""Offline RL on logged answers: advantage-weighted regression with clipped importance weights."""

import random

import torch
from kitchen import FOODS, load_tokenizer, recipes
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


class Log:
    """Answers that an older system wrote, with its log-probabilities and users' ratings."""

    def __init__(self, tok, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for r in recipes(n, seed=seed):
            words = r["answer"].split()
            kept = [w if rng.random() < 0.7 else rng.choice(FOODS) for w in words]
            rating = sum(a == b for a, b in zip(words, kept)) / len(words)
            prompt = tok(f"Q: {r['prompt']}\nA: ").input_ids
            answer = tok(" ".join(kept)).input_ids + [tok.eos_token_id]
            logged = [-rng.uniform(3.0, 6.5) for _ in answer]
            self.rows.append((prompt, answer, logged, rating))
        self.mean = sum(r[3] for r in self.rows) / n

    def batch(self, some, pad):
        rows = [self.rows[i] for i in some]
        width = max(len(p) + len(a) for p, a, _, _ in rows)
        ids = torch.full((len(rows), width), pad)
        attention = torch.zeros_like(ids)
        answer_mask, logged = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
        for i, (p, a, lp, _) in enumerate(rows):
            end = len(p) + len(a)
            ids[i, :end] = torch.tensor(p + a)
            attention[i, :end] = 1
            answer_mask[i, len(p) : end] = 1
            logged[i, len(p) : end] = torch.tensor(lp)
        ratings = torch.tensor([r[3] for r in rows])
        return ids, attention, answer_mask[:, 1:], logged[:, 1:], ratings


def main(updates=8, rows=8, temperature=0.3):
    torch.manual_seed(134)
    tok = load_tokenizer()
    log = Log(tok, 96, seed=134)
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=len(tok),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            bos_token_id=None,
            eos_token_id=tok.eos_token_id,
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    order = torch.randperm(len(log.rows)).tolist()
    for step in range(updates):
        some = order[step * rows : (step + 1) * rows]
        ids, attention, mask, logged, ratings = log.batch(some, tok.pad_token_id)
        logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1]
        logp = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
        with torch.no_grad():
            importance = (logp - logged).exp().clamp(max=1.5)
            weight = ((ratings - log.mean) / temperature).exp().clamp(max=5.0)
        loss = -(weight[:, None] * importance * logp * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        clipped = ((importance == 1.5) * mask).sum() / mask.sum()
        print(f"{step} loss {loss.item():.4f} clipped {clipped:.2f} rating {ratings.mean():.2f}")


if __name__ == "__main__":
    main()
