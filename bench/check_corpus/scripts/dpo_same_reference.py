"""Minimal DPO, one file, no trainer."""

import random

import torch
import torch.nn.functional as F
from common_pairs import pairs, small_llama, word_tokenizer

BETA, LR, BATCH, STEPS = 0.1, 1e-3, 4, 8


def load_models(name, seed=3):
    cache = {}

    def load(name):
        if name not in cache:
            cache[name] = small_llama(seed)
        return cache[name]

    policy = load(name)
    reference = load(name)
    return policy, reference


def encode(tok, prompt, answer):
    p = [tok.bos_token_id, *tok(prompt)["input_ids"]]
    a = [*tok(answer)["input_ids"], tok.eos_token_id]
    return p + a, [-100] * len(p) + a


def collate(tok, rows):
    seqs = [encode(tok, r["prompt"], r["chosen"]) for r in rows]
    seqs += [encode(tok, r["prompt"], r["rejected"]) for r in rows]
    width = max(len(ids) for ids, _ in seqs)
    ids = torch.full((len(seqs), width), tok.pad_token_id)
    labels = torch.full((len(seqs), width), -100)
    mask = torch.zeros(len(seqs), width, dtype=torch.long)
    for i, (x, y) in enumerate(seqs):
        ids[i, : len(x)] = torch.tensor(x)
        labels[i, : len(y)] = torch.tensor(y)
        mask[i, : len(x)] = 1
    return {"input_ids": ids, "attention_mask": mask}, labels


def sequence_logps(model, inputs, labels):
    logits = model(**inputs).logits[:, :-1]
    targets = labels[:, 1:]
    keep = targets != -100
    logps = logits.log_softmax(-1).gather(2, targets.clamp(min=0).unsqueeze(2)).squeeze(2)
    return (logps * keep).sum(1)


def main():
    torch.manual_seed(0)
    tok = word_tokenizer()
    policy, reference = load_models("tiny-base")
    reference.eval()
    policy.train()
    opt = torch.optim.AdamW(policy.parameters(), lr=LR)
    data = pairs(BATCH * STEPS)
    random.Random(0).shuffle(data)
    for step in range(STEPS):
        inputs, labels = collate(tok, data[step * BATCH : (step + 1) * BATCH])
        with torch.no_grad():
            ref_w, ref_l = sequence_logps(reference, inputs, labels).chunk(2)
        pi_w, pi_l = sequence_logps(policy, inputs, labels).chunk(2)
        margin = (pi_w - ref_w) - (pi_l - ref_l)
        loss = -F.logsigmoid(BETA * margin).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f} margin {margin.mean().item():.4f}")


if __name__ == "__main__":
    main()
