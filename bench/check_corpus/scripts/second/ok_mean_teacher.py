"""Student with word dropout, teacher as its moving average: cross entropy and consistency."""

import copy

import torch
import torch.nn.functional as F
from kitchen import load_tokenizer, recipes
from torch import nn

DROP, DECAY, WEIGHT = 0.15, 0.9, 0.5


class GRULM(nn.Module):
    def __init__(self, vocab, pad, dim=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=pad)
        self.rnn = nn.GRU(dim, dim, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


@torch.no_grad()
def follow(teacher, student):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1 - DECAY)


def main():
    torch.manual_seed(101)
    tok = load_tokenizer()
    pad = tok.pad_token_id
    student = GRULM(len(tok), pad)
    teacher = copy.deepcopy(student).eval().requires_grad_(False)
    opt = torch.optim.AdamW(student.parameters(), lr=5e-3)
    rows = recipes(80, seed=101)
    for step in range(8):
        texts = [
            f"{r['prompt']} {r['answer']}{tok.eos_token}" for r in rows[step * 8 : step * 8 + 8]
        ]
        ids = tok(texts, padding=True, return_tensors="pt").input_ids
        inputs, labels = ids[:, :-1], ids[:, 1:]
        noisy = inputs.masked_fill(torch.rand(inputs.shape) < DROP, pad)
        logits = student(noisy)
        with torch.no_grad():
            target = teacher(inputs).softmax(-1)
        keep = labels != pad
        ce = F.cross_entropy(logits[keep], labels[keep])
        consistency = (logits.softmax(-1) - target)[keep].pow(2).sum(-1).mean()
        loss = ce + min(1.0, step / 4) * WEIGHT * consistency
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        opt.step()
        follow(teacher, student)
        print(f"{step} ce {ce.item():.4f} consistency {consistency.item():.6f}")


if __name__ == "__main__":
    main()
