"""On-policy GRPO with a separate generation engine in the same process."""

import copy
from dataclasses import dataclass

import torch
from common_pairs import questions, small_llama, word_tokenizer


@dataclass
class Rollout:
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    prompt_len: int
    logprobs: torch.Tensor
    mask: torch.Tensor


class InferenceEngine:
    """A copy of the policy that only generates. Returns tokens and their log-probabilities."""

    def __init__(self, model, tokenizer, max_tokens=12):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.tokenizer, self.max_tokens = tokenizer, max_tokens

    def update_weights(self, state_dict):
        self.model.load_state_dict(state_dict)

    @torch.no_grad()
    def generate(self, texts, n):
        enc = self.tokenizer(
            [t for t in texts for _ in range(n)], return_tensors="pt", padding=True
        )
        ids, attention = enc["input_ids"], enc["attention_mask"]
        alive = torch.ones(ids.shape[0], dtype=torch.long)
        logprobs, masks = [], []
        for _ in range(self.max_tokens):
            logits = self.model(input_ids=ids, attention_mask=attention).logits[:, -1]
            lp = logits.log_softmax(-1)
            token = torch.multinomial(lp.exp(), 1)
            token = torch.where(alive[:, None] == 1, token, self.tokenizer.pad_token_id)
            logprobs.append(lp.gather(1, token))
            masks.append(alive.clone())
            ids = torch.cat([ids, token], 1)
            attention = torch.cat([attention, alive[:, None]], 1)
            alive = alive * (token[:, 0] != self.tokenizer.eos_token_id).long()
        prompt_len = enc["input_ids"].shape[1]
        return Rollout(ids, attention, prompt_len, torch.cat(logprobs, 1), torch.stack(masks, 1))


class Learner:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)

    def logprobs(self, r):
        logits = self.model(input_ids=r.input_ids, attention_mask=r.attention_mask).logits
        logits = logits[:, r.prompt_len - 1 : -1]
        return logits.log_softmax(-1).gather(2, r.input_ids[:, r.prompt_len :, None]).squeeze(2)

    def compute_gradients(self, r, advantages):
        lp = self.logprobs(r)
        ratio = torch.exp(lp - lp.detach())
        loss = -(ratio * advantages[:, None] * r.mask).sum() / r.mask.sum()
        loss.backward()
        return loss.item()

    def step(self):
        self.opt.step()
        self.opt.zero_grad()


def score(r, tokenizer, rows, n):
    out = []
    for i, line in enumerate(r.input_ids[:, r.prompt_len :].tolist()):
        words = [
            tokenizer.convert_ids_to_tokens(t) for t, m in zip(line, r.mask[i], strict=True) if m
        ]
        out.append(sum(w in words for w in rows[i // n][1]) - 0.03 * len(words))
    return torch.tensor(out)


def main(n=4, per_step=3, steps=8):
    torch.manual_seed(51)
    tokenizer = word_tokenizer("left")
    learner = Learner(small_llama(51), lr=2e-3)
    engine = InferenceEngine(learner.model, tokenizer)
    rows = questions(per_step * steps, seed=51)
    for step in range(steps):
        some = rows[step * per_step : (step + 1) * per_step]
        rollout = engine.generate([f"<s> <user> {text} <bot>" for text, _ in some], n)
        rewards = score(rollout, tokenizer, some, n)
        grouped = rewards.view(per_step, n)
        advantages = (grouped - grouped.mean(1, keepdim=True)) / (
            grouped.std(1, keepdim=True) + 1e-4
        )
        loss = learner.compute_gradients(rollout, advantages.flatten())
        # Hand the weights to the engine while the next prompts are loaded.
        engine.update_weights(learner.model.state_dict())
        learner.step()
        print(f"{step=} reward={rewards.mean().item():.3f} {loss=:.4f}")


if __name__ == "__main__":
    main()
