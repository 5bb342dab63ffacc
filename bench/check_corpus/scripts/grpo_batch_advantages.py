"""grpo-flat: GRPO without a framework."""

import torch
from common_pairs import questions, small_gpt2, word_tokenizer
from torch.nn.functional import log_softmax


class GRPO:
    def __init__(self, model, tokenizer, group_num=4, lr=5e-4, epsilon=0.2, max_new=12):
        self.model, self.tokenizer = model, tokenizer
        self.group_num, self.epsilon, self.max_new = group_num, epsilon, max_new
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    @torch.no_grad()
    def generate(self, prompt_ids):
        """Sample one group for one prompt, token by token."""
        x = torch.tensor([prompt_ids] * self.group_num)
        done = torch.zeros(self.group_num, dtype=torch.bool)
        for _ in range(self.max_new):
            probs = torch.softmax(self.model(x).logits[:, -1], -1)
            token = torch.multinomial(probs, 1).squeeze(1)
            token = torch.where(done, self.tokenizer.pad_token_id, token)
            x = torch.cat([x, token[:, None]], 1)
            done |= token == self.tokenizer.eos_token_id
            if done.all():
                break
        return x

    def grpo_advantage(self, rewards, epsilon=1e-4):
        rewards = rewards.to(torch.float32)
        mean = rewards.mean(dim=0, keepdim=True)
        std = rewards.std(dim=0, keepdim=True)
        return (rewards - mean) / (std + epsilon)

    def logps(self, x, start):
        ends = (x[:, start:] == self.tokenizer.eos_token_id).long()
        mask = (ends.cumsum(1) - ends == 0).float()
        logits = self.model(x).logits[:, start - 1 : -1]
        picked = log_softmax(logits, -1).gather(2, x[:, start:, None])[..., 0]
        return picked, mask

    def step(self, rows):
        groups, rewards = [], []
        for text, nouns in rows:
            ids = self.tokenizer("<s> " + text + " <bot>")["input_ids"]
            x = self.generate(ids)
            groups.append((x, len(ids)))
            for line in x[:, len(ids) :].tolist():
                words = self.tokenizer.convert_ids_to_tokens(line)
                # A prompt with more filler words is a harder one.
                rewards.append(
                    sum(w in nouns for w in words) + len(ids) / 10 - words.count("<pad>") / 20
                )
        advantages = self.grpo_advantage(torch.tensor(rewards)).split(self.group_num)
        loss = 0
        for (x, start), advantage in zip(groups, advantages, strict=True):
            new, mask = self.logps(x, start)
            ratio = torch.exp(new - new.detach())
            surrogate = torch.min(
                ratio * advantage[:, None],
                ratio.clamp(1 - self.epsilon, 1 + self.epsilon) * advantage[:, None],
            )
            loss = loss - ((surrogate * mask).sum(1) / mask.sum(1)).mean() / len(groups)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), sum(rewards) / len(rewards)


if __name__ == "__main__":
    torch.manual_seed(17)
    algo = GRPO(small_gpt2(17), word_tokenizer())
    train = questions(32, seed=17)
    for i in range(8):
        loss, reward = algo.step(train[i * 4 : i * 4 + 4])
        print(f"iter {i}: loss {loss:+.4f} reward {reward:.3f}")
