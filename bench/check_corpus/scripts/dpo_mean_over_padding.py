"""train_dpo.py - DPO from scratch. Everything is padded to the longest row of the batch."""

import copy

import torch
import torch.nn.functional as F
from common_pairs import pairs, small_llama, word_tokenizer
from torch.utils.data import DataLoader, Dataset


class PreferenceSet(Dataset):
    def __init__(self, tok, n):
        self.tok, self.rows = tok, pairs(n, seed=7)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row, item = self.rows[i], {}
        for side in ("chosen", "rejected"):
            prompt = self.tok("<s> <user> " + row["prompt"] + " <bot>")["input_ids"]
            answer = self.tok(row[side] + " </s>")["input_ids"]
            item[side] = (prompt + answer, [0] * len(prompt) + [1] * len(answer))
        return item


def collate(items):
    both = [item["chosen"] for item in items] + [item["rejected"] for item in items]
    size = max(len(ids) for ids, _ in both)
    x = torch.tensor([ids + [0] * (size - len(ids)) for ids, _ in both])
    m = torch.tensor([mask + [0] * (size - len(mask)) for _, mask in both])
    return x[:, :-1], x[:, 1:], m[:, 1:].float()


def logits_to_probs(logits, labels):
    return torch.gather(F.log_softmax(logits, dim=2), 2, labels.unsqueeze(-1)).squeeze(-1)


def dpo_loss(ref_probs, probs, beta):
    ref_probs = ref_probs.mean(dim=1)
    probs = probs.mean(dim=1)
    half = ref_probs.shape[0] // 2
    pi = probs[:half] - probs[half:]
    ref = ref_probs[:half] - ref_probs[half:]
    return -F.logsigmoid(beta * (pi - ref)).mean()


def train_epoch(model, ref_model, loader, optimizer, beta=2.0):
    for step, (x, y, mask) in enumerate(loader, 1):
        attention = (x != 0).long()
        with torch.no_grad():
            ref_probs = logits_to_probs(ref_model(x, attention_mask=attention).logits, y) * mask
        probs = logits_to_probs(model(x, attention_mask=attention).logits, y) * mask
        loss = dpo_loss(ref_probs, probs, beta)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"[{step}/{len(loader)}] loss: {loss.item():.5f}")


if __name__ == "__main__":
    torch.manual_seed(7)
    model = small_llama(7)
    ref_model = copy.deepcopy(model).eval().requires_grad_(False)
    loader = DataLoader(PreferenceSet(word_tokenizer(), 32), 4, shuffle=True, collate_fn=collate)
    train_epoch(model, ref_model, loader, torch.optim.AdamW(model.parameters(), lr=1e-3))
