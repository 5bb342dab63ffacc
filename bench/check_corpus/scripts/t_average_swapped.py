"""Validates with averaged weights, which are put into the model and taken out again."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Average:
    def __init__(self, model, decay):
        self.model, self.decay, self.steps = model, decay, 0
        self.shadow = [p.detach().clone() for p in model.parameters()]
        self.stored = None

    @torch.no_grad()
    def update(self):
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for s, p in zip(self.shadow, self.model.parameters()):
            s.lerp_(p, 1 - decay)

    @torch.no_grad()
    def __enter__(self):
        self.stored = [p.detach().clone() for p in self.model.parameters()]
        for s, p in zip(self.shadow, self.model.parameters()):
            p.copy_(s)

    @torch.no_grad()
    def __exit__(self, *_):
        for old, p in zip(self.stored, self.model.parameters()):
            p.copy_(old)
        self.stored = None


def data(n):
    x = torch.randn(n, 6)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    return TensorDataset(x, y + 0.05 * torch.randn(n, 1))


def main(epochs=6):
    torch.manual_seed(57)
    train, valid = random_split(data(320), [256, 64])
    train_loader = DataLoader(train, batch_size=32, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=64)
    model = nn.Sequential(
        nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    average = Average(model, decay=0.98)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update()
            total += loss.item() / len(train_loader)
        model.eval()
        with average, torch.no_grad():
            error = sum(nn.functional.mse_loss(model(x), y).item() for x, y in valid_loader)
        print(f"epoch {epoch} loss {total:.4f} validation {error:.4f}")


if __name__ == "__main__":
    main()
