"""DPO with accelerate on a GPT-2; both models run in one call of a helper."""

from copy import deepcopy

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from common_pairs import pairs, small_gpt2, word_tokenizer
from torch.utils.data import DataLoader


def build_collate(tokenizer):
    def collate(rows):
        texts = [f"<s> {r['prompt']} {r[k]} </s>" for k in ("chosen", "rejected") for r in rows]
        starts = [len(tokenizer(f"<s> {r['prompt']}")["input_ids"]) for r in rows] * 2
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        batch.pop("token_type_ids", None)
        positions = torch.arange(batch["input_ids"].shape[1])
        answer = (positions[None] >= torch.tensor(starts)[:, None]) & batch["attention_mask"].bool()
        batch["answer_mask"] = answer
        return dict(batch)

    return collate


def logps(model, batch):
    out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    lp = torch.log_softmax(out[:, :-1].float(), -1)
    picked = lp.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return (picked * batch["answer_mask"][:, 1:]).sum(-1)


def main(beta=0.1, lr=3e-4, epochs=1):
    accelerator = Accelerator(cpu=True)
    set_seed(21)
    tokenizer = word_tokenizer()
    model = small_gpt2(21, dropout=0.1)
    ref_model = deepcopy(model)
    for p in ref_model.parameters():
        p.requires_grad = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loader = DataLoader(
        pairs(32, seed=21), batch_size=4, shuffle=True, collate_fn=build_collate(tokenizer)
    )
    model, ref_model, optimizer, loader = accelerator.prepare(model, ref_model, optimizer, loader)
    for _ in range(epochs):
        model.train()
        ref_model.train()
        for i, batch in enumerate(loader):
            with torch.no_grad():
                ref = logps(ref_model, batch)
            cur = logps(model, batch)
            chosen, rejected = beta * (cur - ref).chunk(2)[0], beta * (cur - ref).chunk(2)[1]
            loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.print(
                f"{i}: loss={loss.item():.4f} acc={(chosen > rejected).float().mean():.2f}"
            )


if __name__ == "__main__":
    main()
