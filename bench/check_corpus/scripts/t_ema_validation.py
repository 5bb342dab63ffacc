"""Regression with a moving average of the weights, which is what gets validated."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class ExponentialMovingAverage:
    def __init__(self, model, decay):
        self.decay = decay
        self.params = {k: v.clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.params[k].lerp_(v, 1 - self.decay)

    def state_dict(self):
        return self.params


class Wrapper:
    """Trains the model and validates its average."""

    def __init__(self, model, lr):
        self.model = model
        self.ema = ExponentialMovingAverage(model, decay=0.98)
        self.cached_weights = None
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def training_step(self, x, y):
        if self.cached_weights is not None:
            self.model.load_state_dict(self.cached_weights)
            self.cached_weights = None
        self.model.train()
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.ema.update(self.model)
        return loss.item()

    @torch.no_grad()
    def validate(self, loader):
        self.cached_weights = self.model.state_dict()
        self.model.load_state_dict(self.ema.state_dict())
        self.model.eval()
        errors = [nn.functional.mse_loss(self.model(x), y, reduction="sum") for x, y in loader]
        return (sum(errors) / len(loader.dataset)).item()


def data(n=320):
    x = torch.randn(n, 8)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.05 * torch.randn(n, 1)
    return TensorDataset(x, y)


def main(epochs=6):
    torch.manual_seed(10)
    train, valid = random_split(data(), [256, 64])
    train_loader = DataLoader(train, batch_size=32, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=64)
    model = nn.Sequential(
        nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
    )
    wrapper = Wrapper(model, lr=5e-3)
    for epoch in range(epochs):
        losses = [wrapper.training_step(x, y) for x, y in train_loader]
        print(
            f"epoch {epoch} loss {sum(losses) / len(losses):.4f} "
            f"validation {wrapper.validate(valid_loader):.4f}"
        )


if __name__ == "__main__":
    main()
