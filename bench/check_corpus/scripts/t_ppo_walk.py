"""PPO on a walk along a line: reach the goal at the right end before time runs out."""

import torch
from torch import nn

SIZE, LIMIT, ENVS, HORIZON = 8, 24, 8, 24
GAMMA, LAMBDA, CLIP, EPOCHS, MINIBATCHES = 0.97, 0.95, 0.2, 3, 4


class Walk:
    """`ENVS` walkers side by side. Actions: left, stay, right."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.place = torch.randint(SIZE - 1, (ENVS,), generator=self.g)
        self.age = torch.zeros(ENVS)

    def observe(self):
        spots = nn.functional.one_hot(self.place, SIZE).float()
        return torch.cat([spots, self.age[:, None] / LIMIT], 1)

    def step(self, action):
        self.place = (self.place + action - 1).clamp(0, SIZE - 1)
        self.age += 1
        won = self.place == SIZE - 1
        done = won | (self.age >= LIMIT)
        reward = won.float() - 0.02
        fresh = torch.randint(SIZE - 1, (ENVS,), generator=self.g)
        self.place = torch.where(done, fresh, self.place)
        self.age = torch.where(done, torch.zeros(ENVS), self.age)
        return reward, done.float()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(SIZE + 1, 64), nn.Tanh(), nn.Linear(64, 3))
        self.critic = nn.Sequential(nn.Linear(SIZE + 1, 64), nn.Tanh(), nn.Linear(64, 1))

    def act(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs))


def gae(rewards, values, dones, last):
    out, carry = torch.zeros_like(rewards), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        following = last if t == HORIZON - 1 else values[t + 1]
        delta = rewards[t] + GAMMA * following * (1 - dones[t]) - values[t]
        carry = delta + GAMMA * LAMBDA * (1 - dones[t]) * carry
        out[t] = carry
    return out


def main(updates=12):
    torch.manual_seed(6)
    env, agent = Walk(6), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    for update in range(updates):
        store = {k: [] for k in ("obs", "action", "logp", "value", "reward", "done")}
        for _ in range(HORIZON):
            obs = env.observe()
            with torch.no_grad():
                dist = agent.act(obs)
                action = dist.sample()
                value = agent.critic(obs).squeeze(-1)
            reward, done = env.step(action)
            row = (obs, action, dist.log_prob(action), value, reward, done)
            for key, item in zip(store, row):
                store[key].append(item)
        data = {k: torch.stack(v) for k, v in store.items()}
        with torch.no_grad():
            last = agent.critic(env.observe()).squeeze(-1)
        advantages = gae(data["reward"], data["value"], data["done"], last)
        returns = (advantages + data["value"]).flatten()
        flat = {k: v.flatten(0, 1) for k, v in data.items()}
        advantages = advantages.flatten()
        for _ in range(EPOCHS):
            for pick in torch.randperm(ENVS * HORIZON).chunk(MINIBATCHES):
                dist = agent.act(flat["obs"][pick])
                ratio = (dist.log_prob(flat["action"][pick]) - flat["logp"][pick]).exp()
                adv = advantages[pick]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                policy_loss = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
                value = agent.critic(flat["obs"][pick])
                value_loss = 0.5 * ((value - returns[pick]) ** 2).mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"update {update} reward {data['reward'].mean():.3f} value loss {value_loss:.4f}")


if __name__ == "__main__":
    main()
