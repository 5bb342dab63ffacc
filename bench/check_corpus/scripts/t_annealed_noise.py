"""A deep narrow network; noise that fades is added to each gradient before the step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ETA, GAMMA = 0.01, 0.55


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(6, 16, generator=g)
    y = torch.randint(6, (n,), generator=g)
    return TensorDataset(centres[y] + torch.randn(n, 16, generator=g), y)


def build(depth=8, width=32):
    layers = [nn.Linear(16, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers, nn.Linear(width, 6))


def main(epochs=4):
    torch.manual_seed(21)
    loader = DataLoader(blobs(320, 21), batch_size=32, shuffle=True)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            std = (ETA / (1 + step) ** GAMMA) ** 0.5
            for parameter in model.parameters():
                parameter.grad += std * torch.randn_like(parameter.grad)
            optimizer.step()
            step += 1
        print(f"epoch {epoch} loss {loss.item():.4f} noise {std:.4f}")


if __name__ == "__main__":
    main()
