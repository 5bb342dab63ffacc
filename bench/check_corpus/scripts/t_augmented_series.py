"""Classifies time series with random crops, scales and jitter drawn by the data loader."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, CROP, CLASSES = 160, 128, 4


class Series(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(CLASSES, size=n)
        t = np.arange(LENGTH) / LENGTH
        shapes = [np.sin(12 * t), np.sign(np.sin(12 * t)), (6 * t) % 1, np.sin(30 * t)]
        self.x = np.stack([shapes[c] for c in self.y]) + 0.3 * rng.normal(size=(n, LENGTH))
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        start = self.rng.integers(LENGTH - CROP + 1)
        x = self.x[i, start : start + CROP]
        x = x * self.rng.uniform(0.7, 1.3) + 0.2 * self.rng.normal(size=CROP)
        return torch.tensor(x, dtype=torch.float32)[None], int(self.y[i])


def build():
    return nn.Sequential(
        nn.Conv1d(1, 16, 7, stride=2, padding=3),
        nn.ReLU(),
        nn.Conv1d(16, 32, 7, stride=2, padding=3),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


def main(epochs=3):
    torch.manual_seed(12)
    loader = DataLoader(Series(192, seed=12), batch_size=16, shuffle=True, num_workers=3)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        right = seen = 0
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / seen:.3f}")


if __name__ == "__main__":
    main()
