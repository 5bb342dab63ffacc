"""Intent classification over a streamed JSONL export of a support desk."""

import json
import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

INTENTS = {
    "refund": ["money", "back", "refund", "charged", "twice"],
    "delivery": ["parcel", "late", "courier", "address", "arrive"],
    "login": ["password", "locked", "code", "sign", "account"],
    "cancel": ["cancel", "stop", "subscription", "end", "renew"],
    "invoice": ["invoice", "vat", "receipt", "billing", "pdf"],
    "broken": ["broken", "cracked", "screen", "faulty", "repair"],
}
FILLER = ["hello", "please", "i", "my", "the", "can", "you", "help", "with", "it", "is", "thanks"]
NAMES = list(INTENTS)
WORDS = ["<pad>", *FILLER, *sorted({w for ws in INTENTS.values() for w in ws})]
IDS = {w: i for i, w in enumerate(WORDS)}


def export(path, per_intent=80):
    """Write one line per ticket, as `SELECT ... ORDER BY intent, created_at` gives them."""
    rng = random.Random(3)
    with open(path, "w") as f:
        for name, keys in INTENTS.items():
            for _ in range(per_intent):
                words = rng.choices(FILLER, k=rng.randint(3, 9)) + rng.sample(keys, 2)
                rng.shuffle(words)
                f.write(json.dumps({"text": " ".join(words), "intent": name}) + "\n")


class Tickets(IterableDataset):
    """Streams tickets through a shuffle buffer; the real file does not fit in memory."""

    def __init__(self, path, buffer_size=32, seed=0):
        self.path, self.buffer_size, self.rng = path, buffer_size, random.Random(seed)

    def __iter__(self):
        buffer = []
        with open(self.path) as f:
            for line in f:
                row = json.loads(line)
                if len(buffer) < self.buffer_size:
                    buffer.append(row)
                    continue
                i = self.rng.randrange(self.buffer_size)
                yield buffer[i]
                buffer[i] = row
        self.rng.shuffle(buffer)
        yield from buffer


def collate(rows):
    ids = [torch.tensor([IDS[w] for w in r["text"].split()]) for r in rows]
    y = torch.tensor([NAMES.index(r["intent"]) for r in rows])
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), y


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(len(WORDS), 32, mode="mean", padding_idx=0)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, len(NAMES)))

    def forward(self, x):
        return self.head(self.emb(x))


def main():
    torch.manual_seed(0)
    path = Path(tempfile.mkdtemp()) / "tickets.jsonl"
    export(path)
    loader = DataLoader(Tickets(path), batch_size=16, collate_fn=collate)
    model = Bag()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
            step += 1


if __name__ == "__main__":
    main()
