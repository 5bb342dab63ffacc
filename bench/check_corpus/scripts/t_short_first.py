"""Reads digit strings with a recurrent network; the first epoch goes from short to long."""

import torch
from torch import nn
from torch.utils.data import DataLoader


def strings(n, seed):
    """Strings of digits, each labelled with the running parity of its odd digits."""
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(n):
        length = int(torch.randint(2, 24, (1,), generator=g))
        x = torch.randint(1, 7, (length,), generator=g)
        rows.append((x, (x % 2).cumsum(0) % 2))
    return rows


def collate(rows):
    x = nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    y = nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True, padding_value=-100)
    return x, y


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 48, batch_first=True)
        self.head = nn.Linear(48, 2)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def main(epochs=4):
    torch.manual_seed(33)
    rows = sorted(strings(256, 33), key=lambda r: len(r[0]))
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        loader = DataLoader(rows, batch_size=16, shuffle=epoch > 0, collate_fn=collate)
        total = count = 0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x).transpose(1, 2), y, ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} loss {total / count:.4f}")


if __name__ == "__main__":
    main()
