"""Actor-critic PPO in one file, in the manner of cleanrl; the pole on its cart is built in."""

import math
import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

SEED, ENVS, LENGTH, UPDATES, EPOCHS, MINIBATCHES = 1, 4, 64, 10, 4, 4
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.2, 0.01, 0.5
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


class Carts:
    """Several carts, each with its pole; a fallen pole begins anew."""

    def __init__(self, count):
        self.state = np.random.uniform(-0.05, 0.05, (count, 4))

    def step(self, actions):
        x, v, angle, spin = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * turn * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin], 1)
        self.state[:, 3] += 0.02 * turn
        done = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > 12 * math.pi / 180)
        self.state[done] = np.random.uniform(-0.05, 0.05, (done.sum(), 4))
        return self.state.copy(), np.ones(len(done)), done


def layer(inputs, outputs, std=2**0.5):
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, std)
    nn.init.constant_(made.bias, 0.0)
    return made


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, 0.01)
        )

    def act(self, x, action=None):
        drawn = Categorical(logits=self.actor(x))
        action = drawn.sample() if action is None else action
        return action, drawn.log_prob(action), drawn.entropy(), self.critic(x).flatten()


carts, agent = Carts(ENVS), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs = torch.tensor(carts.state, dtype=torch.float32)
done = torch.zeros(ENVS)
for update in range(UPDATES):
    optimizer.param_groups[0]["lr"] = 2.5e-4 * (1 - update / UPDATES)
    seen, acts, logs, rewards, dones, values = [], [], [], [], [], []
    for _ in range(LENGTH):
        with torch.no_grad():
            action, logprob, _, value = agent.act(obs)
        seen.append(obs), acts.append(action), logs.append(logprob), values.append(value)
        dones.append(done)
        state, reward, ended = carts.step(action.numpy())
        rewards.append(torch.tensor(reward, dtype=torch.float32))
        obs, done = torch.tensor(state, dtype=torch.float32), torch.tensor(ended).float()
    with torch.no_grad():
        following, ahead, advantages = agent.critic(obs).flatten(), 1 - done, [None] * LENGTH
        last = torch.zeros(ENVS)
        for t in reversed(range(LENGTH)):
            delta = rewards[t] + GAMMA * following * ahead - values[t]
            last = advantages[t] = delta + GAMMA * LAMBDA * ahead * last
            following, ahead = values[t], 1 - dones[t]
    b_obs, b_acts, b_logs = torch.cat(seen), torch.cat(acts), torch.cat(logs)
    b_adv, b_values = torch.cat(advantages), torch.cat(values)
    b_returns, places = b_adv + b_values, np.arange(ENVS * LENGTH)
    for _ in range(EPOCHS):
        np.random.shuffle(places)
        for mini in np.split(places, MINIBATCHES):
            _, logprob, entropy, value = agent.act(b_obs[mini], b_acts[mini])
            ratio = (logprob - b_logs[mini]).exp()
            adv = (b_adv[mini] - b_adv[mini].mean()) / (b_adv[mini].std() + 1e-8)
            policy = torch.max(-adv * ratio, -adv * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            critic = 0.5 * ((value - b_returns[mini]) ** 2).mean()
            loss = policy - ENTROPY * entropy.mean() + VALUE * critic
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"update {update} loss {loss.item():.6f} fell {int(sum(d.sum() for d in dones))}")
Path("out").mkdir(exist_ok=True)
torch.save(agent.state_dict(), "out/agent.pt")
