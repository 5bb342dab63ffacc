"""PPO with a value head on a GPT-2, four passes over each rollout. The reward counts foods."""

import torch
import torch.nn as nn
from kitchen import FOODS, load_tokenizer, recipes
from transformers import GPT2Config, GPT2LMHeadModel

ROLLOUT, NEW_TOKENS, EPOCHS, CLIP, VF, KL, GAMMA, LAM = 8, 12, 4, 0.2, 0.1, 0.05, 1.0, 0.95


class ActorCritic(nn.Module):
    def __init__(self, tok):
        super().__init__()
        self.lm = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(tok),
                n_positions=128,
                n_embd=48,
                n_layer=2,
                n_head=4,
                initializer_range=0.1,
                bos_token_id=None,
                eos_token_id=tok.eos_token_id,
                pad_token_id=tok.pad_token_id,
            )
        )
        self.value = nn.Linear(48, 1)

    def forward(self, ids, mask):
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        out = self.lm(
            input_ids=ids, attention_mask=mask, position_ids=positions, output_hidden_states=True
        )
        return out.logits, self.value(out.hidden_states[-1]).squeeze(-1)


def evaluate(model, ids, mask, start):
    logits, values = model(ids, mask)
    logp = logits[:, start - 1 : -1].log_softmax(-1)
    return logp.gather(2, ids[:, start:, None]).squeeze(2), values[:, start - 1 : -1]


def gae(rewards, values, mask):
    advantages, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(rewards.size(1))):
        following = values[:, t + 1] * mask[:, t + 1] if t + 1 < rewards.size(1) else 0.0
        delta = rewards[:, t] + GAMMA * following - values[:, t]
        last = delta + GAMMA * LAM * last * (mask[:, t + 1] if t + 1 < rewards.size(1) else 0.0)
        advantages[:, t] = last
    return advantages * mask


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def main(updates=6):
    torch.manual_seed(20)
    tok = load_tokenizer("left")
    policy, reference = ActorCritic(tok), ActorCritic(tok)
    reference.load_state_dict(policy.state_dict())
    reference.eval().requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=3e-4)
    prompts = [f"Q: {r['prompt']}\nA:" for r in recipes(ROLLOUT * updates, seed=20)]
    for update in range(updates):
        enc = tok(
            prompts[update * ROLLOUT : (update + 1) * ROLLOUT], padding=True, return_tensors="pt"
        )
        start = enc.input_ids.size(1)
        policy.eval()
        with torch.no_grad():
            ids = policy.lm.generate(
                **enc, do_sample=True, top_k=0, max_new_tokens=NEW_TOKENS, use_cache=True
            )
            ended = (ids[:, start:] == tok.eos_token_id).cumsum(1)
            answer_mask = (ended - (ids[:, start:] == tok.eos_token_id).long()).eq(0).long()
            mask = torch.cat([enc.attention_mask, answer_mask], 1)
            old_logp, old_values = evaluate(policy, ids, mask, start)
            ref_logp, _ = evaluate(reference, ids, mask, start)
        texts = tok.batch_decode(ids[:, start:], skip_special_tokens=True)
        scores = torch.tensor([sum(f[:3] in t for f in FOODS) - 0.02 * len(t) for t in texts])
        rewards = -KL * (old_logp - ref_logp) * answer_mask
        rewards[torch.arange(len(texts)), answer_mask.sum(1) - 1] += scores
        advantages = gae(rewards, old_values, answer_mask)
        returns = advantages + old_values
        centred = advantages - masked_mean(advantages, answer_mask)
        scaled = centred / (masked_mean(centred**2, answer_mask).sqrt() + 1e-8)
        policy.train()
        for _ in range(EPOCHS):
            logp, values = evaluate(policy, ids, mask, start)
            ratio = (logp - old_logp).exp()
            pg = torch.max(-scaled * ratio, -scaled * ratio.clamp(1 - CLIP, 1 + CLIP))
            clipped = old_values + (values - old_values).clamp(-CLIP, CLIP)
            vf = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2)
            loss = masked_mean(pg, answer_mask) + VF * masked_mean(vf, answer_mask)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
        print(f"update {update} score {scores.mean():.3f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
