"""PPO for a language model in plain torch: rollouts, GAE, clipped policy and value losses."""

import copy

import torch
from common_pairs import questions, small_llama, word_tokenizer
from torch import nn

GAMMA, LAM, CLIP, VF_COEF, KL_COEF = 1.0, 0.95, 0.2, 0.1, 0.05
ROLLOUTS, BATCH, NEW, EPOCHS = 6, 8, 14, 2


class ActorCritic(nn.Module):
    def __init__(self, lm):
        super().__init__()
        self.lm = lm
        self.v_head = nn.Linear(lm.config.hidden_size, 1)
        self.optimizer = torch.optim.AdamW(self.lm.parameters(), lr=3e-4)

    def forward(self, ids, mask, start):
        out = self.lm(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        lp = out.logits[:, start - 1 : -1].log_softmax(-1)
        lp = lp.gather(2, ids[:, start:].unsqueeze(2)).squeeze(2)
        values = self.v_head(out.hidden_states[-1][:, start - 1 : -1]).squeeze(2)
        return lp, values


def rollout(agent, reference, tok, batch):
    texts = ["<s> <user> " + text + " <bot>" for text, _ in batch]
    prompt = tok(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        ids = agent.lm.generate(
            input_ids=prompt["input_ids"],
            attention_mask=prompt["attention_mask"],
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=1.0,
            max_new_tokens=NEW,
        )
    start = prompt["input_ids"].shape[1]
    answer = ids[:, start:]
    ended = (answer == tok.eos_token_id).long().cumsum(1)
    alive = ((ended - (answer == tok.eos_token_id).long()) == 0).long()
    mask = torch.cat([prompt["attention_mask"], alive], 1)
    with torch.no_grad():
        lp, values = agent(ids, mask, start)
        ref_out = reference(input_ids=ids, attention_mask=mask).logits[:, start - 1 : -1]
        ref_lp = ref_out.log_softmax(-1).gather(2, answer.unsqueeze(2)).squeeze(2)
    rewards = -KL_COEF * (lp - ref_lp) * alive
    for i, (_, nouns) in enumerate(batch):
        words = tok.convert_ids_to_tokens(answer[i][alive[i].bool()].tolist())
        score = sum(noun in words for noun in nouns) - 0.05 * len(words)
        rewards[i, alive[i].sum() - 1] += score
    return ids, mask, start, alive, lp, values * alive, rewards


def gae(rewards, values, alive):
    advantages, last = torch.zeros_like(rewards), torch.zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        following = values[:, t + 1] if t + 1 < rewards.shape[1] else torch.zeros_like(last)
        delta = rewards[:, t] + GAMMA * following - values[:, t]
        last = (delta + GAMMA * LAM * last) * alive[:, t]
        advantages[:, t] = last
    return advantages, advantages + values


def mean(x, mask):
    return (x * mask).sum() / mask.sum()


def main():
    torch.manual_seed(4)
    tok = word_tokenizer("left")
    lm = small_llama(4)
    reference = copy.deepcopy(lm).eval().requires_grad_(False)
    agent = ActorCritic(lm)
    data = questions(ROLLOUTS * BATCH, seed=4)
    for n in range(ROLLOUTS):
        memory = rollout(agent, reference, tok, data[n * BATCH : (n + 1) * BATCH])
        ids, mask, start, alive, old_lp, old_values, rewards = memory
        advantages, returns = gae(rewards, old_values, alive)
        center = mean(advantages, alive)
        scale = mean((advantages - center) ** 2, alive).sqrt() + 1e-8
        advantages = (advantages - center) / scale
        for _ in range(EPOCHS):
            lp, values = agent(ids, mask, start)
            ratio = (lp - old_lp).exp()
            policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP, 1 + CLIP))
            clipped = old_values + (values - old_values).clamp(-CLIP, CLIP)
            value = torch.max((values - returns) ** 2, (clipped - returns) ** 2) / 2
            loss = mean(policy, alive) + VF_COEF * mean(value, alive)
            agent.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
            agent.optimizer.step()
        print(f"rollout {n} reward {rewards.sum(1).mean():.3f} value loss {mean(value, alive):.4f}")


if __name__ == "__main__":
    main()
