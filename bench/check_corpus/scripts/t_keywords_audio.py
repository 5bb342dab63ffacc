"""Spots keywords in short waveforms with a 1D convolutional network."""

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset, random_split

CLASSES, LENGTH = 5, 256


def waveforms(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=g)
    t = torch.arange(LENGTH) / LENGTH
    phase = 2 * math.pi * torch.rand(n, 1, generator=g)
    x = torch.sin(2 * math.pi * (4 + 3 * y[:, None]) * t + phase)
    return (x + 0.6 * torch.randn(n, LENGTH, generator=g))[:, None], y


def build():
    def block(i, o):
        return nn.Sequential(nn.Conv1d(i, o, 9, stride=2, padding=4), nn.BatchNorm1d(o), nn.ReLU())

    return nn.Sequential(
        block(1, 16),
        block(16, 32),
        block(32, 32),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32, CLASSES),
    )


def train_one_epoch(model, loader, optimizer, scheduler):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(y)
    return total / len(loader.dataset)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return right / len(loader.dataset)


def main(epochs=6, batch_size=32):
    torch.manual_seed(1)
    data = TensorDataset(*waveforms(480, seed=1))
    train, valid = random_split(data, [400, 80])
    train_loader = DataLoader(train, batch_size=batch_size, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=batch_size)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    # a tenth of the rate from the third epoch on, again from the fifth
    scheduler = StepLR(optimizer, step_size=2, gamma=0.1)
    for epoch in range(epochs):
        loss = train_one_epoch(model, train_loader, optimizer, scheduler)
        print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy(model, valid_loader):.3f}")


if __name__ == "__main__":
    main()
