"""A small U-Net with automatic mixed precision; finds discs in noisy images."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def discs(n, size=32, seed=0):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(8, size - 8, (n, 2), generator=g)
    radius = torch.randint(3, 8, (n, 1, 1), generator=g)
    inside = (yy - centre[:, 0, None, None]) ** 2 + (xx - centre[:, 1, None, None]) ** 2
    mask = (inside <= radius**2).long()
    image = mask + 0.5 * torch.randn(n, size, size, generator=g)
    return image[:, None], mask


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.a, self.b, self.c = double(1, c), double(c, 2 * c), double(2 * c, 4 * c)
        self.up1, self.d = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), double(4 * c, 2 * c)
        self.up2, self.e = nn.ConvTranspose2d(2 * c, c, 2, 2), double(2 * c, c)
        self.out = nn.Conv2d(c, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        x = self.d(torch.cat([self.up1(c), b], 1))
        return self.out(self.e(torch.cat([self.up2(x), a], 1)))


def dice(logits, mask):
    p = logits.float().softmax(1)[:, 1]
    overlap = 2 * (p * mask).sum((1, 2)) + 1
    return 1 - (overlap / (p.sum((1, 2)) + mask.sum((1, 2)) + 1)).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    args, _ = parser.parse_known_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*discs(96)), batch_size=12, shuffle=True)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-5)
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(args.epochs):
        model.train()
        for step, (image, mask) in enumerate(loader):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(image)
                loss = F.cross_entropy(logits.float(), mask) + dice(logits, mask)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
