"""Tiny-R1: group-relative policy optimisation on toy questions."""

import torch
from common_pairs import questions, small_llama, word_tokenizer
from transformers import GenerationConfig

torch.manual_seed(23)
device = "cpu"
tokenizer = word_tokenizer(padding_side="left")
model = small_llama(23).to(device)
optim = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
G, Q = 4, 3
gen = GenerationConfig(
    do_sample=True,
    temperature=1.0,
    top_k=0,
    max_new_tokens=20,
    num_return_sequences=G,
    pad_token_id=tokenizer.pad_token_id,
    eos_token_id=tokenizer.eos_token_id,
)


def reward(text, nouns):
    words = text.split()
    hit = sum(noun in words for noun in nouns)
    return hit + (0.5 if 0 < len(words) < 12 else 0.0)


def per_token(ids, attention, keep):
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -keep - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[:, -keep:].unsqueeze(-1)).squeeze(-1)


items = questions(8 * Q, seed=23)
for it in range(8):
    chunk = items[it * Q : (it + 1) * Q]
    enc = tokenizer([f"<s> <user> {t} <bot>" for t, _ in chunk], return_tensors="pt", padding=True)
    with torch.inference_mode():
        out = model.generate(
            enc["input_ids"], attention_mask=enc["attention_mask"], generation_config=gen
        )
    out = out.clone()
    completion = out[:, enc["input_ids"].shape[1] :]
    completion_mask = torch.ones_like(completion)
    attention = torch.cat([enc["attention_mask"].repeat_interleave(G, 0), completion_mask], 1)

    texts = tokenizer.batch_decode(completion, skip_special_tokens=True)
    r = torch.tensor([reward(t, chunk[i // G][1]) for i, t in enumerate(texts)]).view(Q, G)
    adv = ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).view(-1, 1)

    with torch.no_grad():
        old = per_token(out, attention, completion.shape[1])
    for _ in range(1):
        new = per_token(out, attention, completion.shape[1])
        ratio = (new - old).exp()
        objective = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
        loss = -(objective * completion_mask).sum() / completion_mask.sum()
        loss.backward()
        optim.step()
        optim.zero_grad()
    print(f"it {it} reward {r.mean().item():.3f} loss {loss.item():.4f} len {completion.shape[1]}")
