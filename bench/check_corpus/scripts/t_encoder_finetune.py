"""Fine-tunes a pretrained sentence encoder for topics; the head is new."""

import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

TOPICS = {
    0: ["goal", "match", "coach", "league"],
    1: ["vote", "law", "party", "senate"],
    2: ["chip", "code", "robot", "data"],
}
COMMON = ["the", "a", "of", "in", "on", "was", "new", "for", "and", "with"]
WORDS = ["<pad>", *COMMON, *(w for words in TOPICS.values() for w in words)]
WIDTH = 64


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        pad = ids == 0
        h = self.blocks(self.embed(ids), src_key_padding_mask=pad)
        return h.masked_fill(pad[..., None], 0).sum(1) / (~pad).sum(1, keepdim=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(WIDTH, len(TOPICS))

    def forward(self, ids):
        return self.head(self.encoder(ids))


class PretrainingModule(nn.Module):
    """What the pretraining job wraps around the network."""

    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({"encoder": Encoder()})
        self.mlm = nn.Linear(WIDTH, len(WORDS))


def fetch_checkpoint():
    """Stand-in for the download of the pretrained weights."""
    torch.manual_seed(99)
    path = Path(tempfile.mkdtemp()) / "last.ckpt"
    torch.save({"state_dict": PretrainingModule().state_dict(), "epoch": 40}, path)
    return path


def sentences(n, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        topic = rng.randrange(len(TOPICS))
        words = rng.choices(COMMON, k=rng.randint(4, 10)) + rng.sample(TOPICS[topic], 2)
        rng.shuffle(words)
        out.append((torch.tensor([WORDS.index(w) for w in words]), topic))
    return out


def collate(rows):
    ids = nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    return ids, torch.tensor([r[1] for r in rows])


def main(epochs=2):
    checkpoint = torch.load(fetch_checkpoint(), map_location="cpu")
    torch.manual_seed(14)
    model = Classifier()
    # the head is not part of the checkpoint
    model.load_state_dict(checkpoint["state_dict"], strict=False)
    print("loaded weights of epoch", checkpoint["epoch"])
    optimizer = torch.optim.AdamW(
        [
            {"params": model.encoder.parameters(), "lr": 2e-4},
            {"params": model.head.parameters(), "lr": 2e-3},
        ]
    )
    loader = DataLoader(sentences(160, seed=14), batch_size=16, shuffle=True, collate_fn=collate)
    for epoch in range(epochs):
        model.train()
        for i, (ids, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(ids), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 3 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
