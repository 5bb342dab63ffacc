"""GRPO in a loop of its own, with a penalty that keeps the policy near its start."""

import torch
from common_pairs import questions, small_llama, word_tokenizer
from torch.func import functional_call

GROUP, NEW, BETA, LR, STEPS = 6, 10, 0.1, 1e-3, 14


def reward(texts, nouns):
    scores = []
    for text, wanted in zip(texts, nouns):
        words = text.split()
        scores.append(sum(n in words for n in wanted) + 0.1 * ("yes" in words))
    return torch.tensor(scores, dtype=torch.float)


def logps(model, ids, mask, start, weights=None):
    """Log-probabilities of the tokens from `start` on, (batch, time - start)."""
    call = {"input_ids": ids, "attention_mask": mask}
    if weights is None:
        logits = model(**call).logits
    else:
        logits = functional_call(model, weights, kwargs=call).logits
    lp = torch.log_softmax(logits[:, start - 1 : -1], -1)
    return lp.gather(-1, ids[:, start:, None])[..., 0]


def rollout(model, tokenizer, prompts):
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    ids = batch["input_ids"].repeat_interleave(GROUP, 0)
    mask = batch["attention_mask"].repeat_interleave(GROUP, 0)
    with torch.no_grad():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=NEW,
            min_new_tokens=2,
            pad_token_id=0,
        )
    start = ids.shape[1]
    ended = (out[:, start:] == tokenizer.eos_token_id).cumsum(1)
    kept = (ended - (out[:, start:] == tokenizer.eos_token_id).long()) == 0
    return out, torch.cat([mask, kept.long()], 1), start, kept.float()


def main():
    torch.manual_seed(13)
    tokenizer = word_tokenizer("left")
    policy = small_llama(13)
    reference = {name: w.detach() for name, w in policy.state_dict().items()}
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LR, weight_decay=0.0)
    tasks = questions(4 * STEPS, seed=13)
    for step in range(STEPS):
        part = tasks[4 * step : 4 * step + 4]
        prompts = [f"<s> <user> {text} <bot>" for text, _ in part]
        ids, mask, start, kept = rollout(policy, tokenizer, prompts)
        texts = tokenizer.batch_decode(ids[:, start:], skip_special_tokens=True)
        scores = reward(texts, [n for _, n in part for _ in range(GROUP)]).view(-1, GROUP)
        advantage = (scores - scores.mean(1, keepdim=True)) / (scores.std(1, keepdim=True) + 1e-4)
        advantage = advantage.view(-1, 1)

        new = logps(policy, ids, mask, start)
        with torch.no_grad():
            ref = logps(policy, ids, mask, start, reference)
        gap = ref - new
        kl = gap.exp() - gap - 1
        per_token = -torch.exp(new - new.detach()) * advantage + BETA * kl
        loss = (per_token * kept).sum() / kept.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        mean_kl = ((kl * kept).sum() / kept.sum()).item()
        print(f"step {step} reward {scores.mean():.3f} loss {loss.item():.4f} kl {mean_kl:.5f}")


if __name__ == "__main__":
    main()
