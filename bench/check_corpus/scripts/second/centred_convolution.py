"""Gated convolutional language model (no attention) on recipes."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes


class GatedConv(nn.Module):
    def __init__(self, channels, kernel=3):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.conv = nn.Conv1d(channels, 2 * channels, kernel, padding=kernel // 2)

    def forward(self, x):
        y = self.conv(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + F.glu(y, -1)


class ConvLM(nn.Module):
    def __init__(self, vocab, channels=48, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(vocab, channels)
        self.layers = nn.Sequential(*[GatedConv(channels) for _ in range(layers)])
        self.norm = nn.LayerNorm(channels)
        self.lm_head = nn.Linear(channels, vocab, bias=False)
        self.lm_head.weight = self.tokens.weight

    def forward(self, ids):
        return self.lm_head(self.norm(self.layers(self.tokens(ids))))


def batches(tok, rows, size):
    for i in range(0, len(rows) - size + 1, size):
        part = [
            torch.tensor(tok(f"{r['prompt']} = {r['answer']}{tok.eos_token}").input_ids)
            for r in rows[i : i + size]
        ]
        yield nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=tok.pad_token_id)


def main():
    torch.manual_seed(90)
    tok = load_tokenizer()
    model = ConvLM(len(tok))
    nn.init.normal_(model.tokens.weight, std=0.1)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    for n, ids in enumerate(batches(tok, recipes(72, seed=90), 8)):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=tok.pad_token_id
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        print(n, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
