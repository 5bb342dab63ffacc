"""KTO in a loop of its own; one long row at a time fits in memory, so gradients accumulate."""

from copy import deepcopy

import torch
from common_pairs import pairs, small_llama, word_tokenizer
from torch.utils.data import DataLoader

BETA, ACCUMULATE, LR = 0.3, 8, 1e-3


def rows(n, seed):
    for i, pair in enumerate(pairs(n, seed)):
        good = i % 2 == 0
        yield {
            "prompt": f"<s> <user> {pair['prompt']} <bot>",
            "completion": f" {pair['chosen' if good else 'rejected']} </s>",
            "good": good,
        }


class Collator:
    """Pads rows; for the KL term each prompt also gets the completion of the next row."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, prompts, completions):
        width = [len(self.tokenizer(p)["input_ids"]) for p in prompts]
        texts = [p + c for p, c in zip(prompts, completions)]
        batch = self.tokenizer(texts, padding=True, return_tensors="pt")
        place = torch.arange(batch["input_ids"].shape[1])
        answer = (place[None] >= torch.tensor(width)[:, None]) & (batch["attention_mask"] == 1)
        return batch["input_ids"], batch["attention_mask"], answer

    def __call__(self, part):
        prompts = [r["prompt"] for r in part]
        completions = [r["completion"] for r in part]
        other = completions[1:] + completions[:1]
        return (
            self.encode(prompts, completions),
            self.encode(prompts, other),
            torch.tensor([r["good"] for r in part]),
        )


def logps(model, ids, mask, answer):
    lp = torch.log_softmax(model(input_ids=ids, attention_mask=mask).logits[:, :-1], -1)
    return (lp.gather(-1, ids[:, 1:, None])[..., 0] * answer[:, 1:]).sum(-1)


def main():
    torch.manual_seed(29)
    tokenizer = word_tokenizer()
    policy = small_llama(29)
    reference = deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LR)
    loader = DataLoader(
        list(rows(128, seed=29)), batch_size=1, shuffle=True, collate_fn=Collator(tokenizer)
    )
    total = 0.0
    for i, (matched, mismatched, good) in enumerate(loader):
        with torch.no_grad():
            kl = (logps(policy, *mismatched) - logps(reference, *mismatched)).mean().clamp(min=0)
            ref = logps(reference, *matched)
        ratio = logps(policy, *matched) - ref
        sign = good.float() * 2 - 1
        loss = (1 - torch.sigmoid(BETA * sign * (ratio - kl))).mean()
        (loss / ACCUMULATE).backward()
        total += loss.item() / ACCUMULATE
        if (i + 1) % ACCUMULATE == 0:
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {i // ACCUMULATE} loss {total:.4f} kl {kl.item():.4f}")
            total = 0.0


if __name__ == "__main__":
    main()
