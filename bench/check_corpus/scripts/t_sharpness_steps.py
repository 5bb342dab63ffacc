"""An image classifier; each step climbs first and uses the gradient found there."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RHO = 0.05


def images(n, seed):
    """Bars in one of four directions, with noise."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (n,), generator=g)
    x = 0.4 * torch.randn(n, 1, 16, 16, generator=g)
    for i, c in enumerate(y.tolist()):
        k = int(torch.randint(4, 12, (1,), generator=g))
        if c == 0:
            x[i, 0, k] += 2
        elif c == 1:
            x[i, 0, :, k] += 2
        else:
            line = torch.eye(16) if c == 2 else torch.eye(16).flip(0)
            x[i, 0] += 2 * line
    return TensorDataset(x, y)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


def main(epochs=6):
    torch.manual_seed(83)
    loader = DataLoader(images(256, 83), batch_size=32, shuffle=True)
    model = build()
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in params]).norm()
                moves = [p.grad * (RHO / (norm + 1e-12)) for p in params]
                for p, move in zip(params, moves):
                    p.add_(move)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, move in zip(params, moves):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
