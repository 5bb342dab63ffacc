"""DPO in a loop of its own; log-ratios are divided by the length of the answer."""

from copy import deepcopy

import torch
from common_pairs import pairs, small_llama, word_tokenizer
from torch.utils.data import DataLoader

BETA, LR = 5.0, 5e-4


def collate_with(tokenizer):
    def collate(rows):
        prompts = [f"<s> <user> {r['prompt']} <bot>" for r in rows] * 2
        answers = [r["chosen"] for r in rows] + [r["rejected"] for r in rows]
        texts = [f"{p} {a} </s>" for p, a in zip(prompts, answers)]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        width = torch.tensor([len(tokenizer(p)["input_ids"]) for p in prompts])
        place = torch.arange(batch["input_ids"].shape[1])
        answer = (place[None] >= width[:, None]) & (batch["attention_mask"] == 1)
        return batch["input_ids"], batch["attention_mask"], answer

    return collate


def logps(model, ids, mask, answer):
    """Summed log-probability of each answer."""
    lp = torch.log_softmax(model(input_ids=ids, attention_mask=mask).logits[:, :-1], -1)
    return (lp.gather(-1, ids[:, 1:, None])[..., 0] * answer[:, 1:]).sum(-1)


def main(epochs=2):
    torch.manual_seed(59)
    tokenizer = word_tokenizer()
    policy = small_llama(59)
    reference = deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LR)
    loader = DataLoader(
        pairs(64, seed=59), batch_size=8, shuffle=True, collate_fn=collate_with(tokenizer)
    )
    for epoch in range(epochs):
        for i, batch in enumerate(loader):
            with torch.no_grad():
                ref = logps(reference, *batch)
            ratio = (logps(policy, *batch) - ref) / batch[2].sum(-1)
            chosen, rejected = ratio.chunk(2)
            loss = -torch.nn.functional.logsigmoid(BETA * (chosen - rejected)).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            right = (chosen > rejected).float().mean()
            print(f"epoch {epoch} batch {i} loss {loss.item():.4f} right {right:.2f}")


if __name__ == "__main__":
    main()
