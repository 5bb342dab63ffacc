"""REINFORCE++: one answer per prompt, KL in the reward of each token, advantages of the batch."""

import copy

import torch
from kitchen import FOODS, load_tokenizer, recipes, sizes
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, LENGTH, KL, CLIP, LR = 8, 12, 0.02, 0.2, 1e-3


def logprobs(model, ids, mask, n):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -n - 1 : -1]
    return logits.log_softmax(-1).gather(2, ids[:, -n:, None]).squeeze(2)


def rollout(policy, tok, prompts):
    enc = tok(prompts, padding=True, return_tensors="pt")
    policy.eval()
    with torch.no_grad():
        ids = policy.generate(**enc, do_sample=True, top_k=0, max_new_tokens=LENGTH)
    policy.train()
    new = ids[:, enc.input_ids.size(1) :]
    end = new == tok.eos_token_id
    alive = (end.cumsum(1) - end.long()).eq(0).long()
    return ids, torch.cat([enc.attention_mask, alive], 1), alive


def main():
    torch.manual_seed(123)
    tok = load_tokenizer("left")
    policy = LlamaForCausalLM(LlamaConfig(**sizes(tok)))
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=LR)
    data = recipes(64, seed=123)
    for step in range(7):
        prompts = [f"Q: {r['prompt']}\nA:" for r in data[step * BATCH : (step + 1) * BATCH]]
        ids, mask, alive = rollout(policy, tok, prompts)
        n = alive.size(1)
        texts = tok.batch_decode(ids[:, -n:], skip_special_tokens=True)
        score = torch.tensor([sum(t.count(f[:2]) for f in FOODS) - 0.01 * len(t) for t in texts])
        with torch.no_grad():
            old = logprobs(policy, ids, mask, n)
            kl = (old - logprobs(reference, ids, mask, n)) * alive
        rewards = -KL * kl
        rewards[torch.arange(BATCH), alive.sum(1) - 1] += score
        returns = rewards.flip(1).cumsum(1).flip(1)
        valid = returns[alive.bool()]
        advantages = (returns - valid.mean()) / (valid.std() + 1e-8)
        for _ in range(2):
            ratio = (logprobs(policy, ids, mask, n) - old).exp()
            pg = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP, 1 + CLIP))
            loss = (pg * alive).sum() / alive.sum()
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
        print(f"{step} score {score.mean():.3f} kl {kl.sum(1).mean():.4f}")


if __name__ == "__main__":
    main()
