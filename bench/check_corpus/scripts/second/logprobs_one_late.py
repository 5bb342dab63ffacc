"""REINFORCE with a baseline, in the style of a notebook. The sampler keeps its log-probabilities."""

import torch
from kitchen import load_tokenizer, recipes, sizes
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(73)
tok = load_tokenizer("left")
policy = Qwen2ForCausalLM(Qwen2Config(**sizes(tok)))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
data = recipes(48, seed=73)
baseline = None


def sample(prompts, n=10):
    enc = tok(prompts, padding=True, return_tensors="pt")
    ids, mask = enc.input_ids, enc.attention_mask
    logprobs, alive = [], torch.ones(len(prompts), 1, dtype=torch.long)
    for _ in range(n):
        with torch.no_grad():
            logits = policy(input_ids=ids, attention_mask=mask).logits[:, -1]
        dist = torch.distributions.Categorical(logits=logits)
        token = dist.sample()
        logprobs.append(dist.log_prob(token))
        token = torch.where(alive[:, 0] == 1, token, tok.pad_token_id)
        ids, mask = torch.cat([ids, token[:, None]], 1), torch.cat([mask, alive], 1)
        alive = alive * (token[:, None] != tok.eos_token_id)
    start = enc.input_ids.size(1)
    return ids, mask, start, torch.stack(logprobs, 1)


def token_logprobs(ids, mask, start):
    logits = policy(input_ids=ids, attention_mask=mask).logits
    actions = ids[:, start:]
    action_logits = logits[:, start:]
    return action_logits.log_softmax(-1).gather(2, actions[..., None]).squeeze(-1)


def reward(text, answer):
    wanted = set(answer.replace(",", "").split())
    return sum(w in text for w in wanted) / len(wanted) + 0.01 * text.count(" ")


for step in range(8):
    rows = data[step * 6 : step * 6 + 6]
    ids, mask, start, sampled = sample([f"Q: {r['prompt']} A:" for r in rows])
    texts = tok.batch_decode(ids[:, start:], skip_special_tokens=True)
    rewards = torch.tensor([reward(t, r["answer"]) for t, r in zip(texts, rows)])
    baseline = rewards.mean() if baseline is None else 0.9 * baseline + 0.1 * rewards.mean()
    completion = mask[:, start:]
    logp = token_logprobs(ids, mask, start)
    loss = -((rewards - baseline)[:, None] * logp * completion).sum() / completion.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    entropy = -(sampled * completion).sum() / completion.sum()
    print(f"step {step} reward {rewards.mean():.3f} loss {loss.item():.4f} entropy {entropy:.3f}")
