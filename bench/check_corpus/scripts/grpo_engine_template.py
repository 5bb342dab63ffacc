"""RL on chat prompts. The engine takes messages, as a chat completions server does."""

import torch
from common_pairs import questions, small_llama, word_tokenizer

SYSTEM = {"role": "system", "content": "be brief and good ."}
GROUP, PROMPTS, UPDATES, LENGTH = 4, 3, 8, 10


class ChatEngine:
    """Stands for an inference server: it has a tokenizer and a template of its own."""

    def __init__(self, weights):
        self.tokenizer = word_tokenizer("left")
        self.lm = small_llama(0).eval()
        self.sync(weights)

    def sync(self, weights):
        with torch.no_grad():
            for mine, theirs in zip(self.lm.parameters(), weights, strict=True):
                mine.copy_(theirs)

    def chat(self, conversations):
        """Return one dict per conversation: completion ids and their log-probabilities."""
        texts = [
            self.tokenizer.apply_chat_template(
                [SYSTEM, *messages], tokenize=False, add_generation_prompt=True
            )
            for messages in conversations
        ]
        enc = self.tokenizer(texts, padding=True, return_tensors="pt")
        out = self.lm.generate(
            input_ids=enc["input_ids"],
            attention_mask=enc["attention_mask"],
            do_sample=True,
            top_k=0,
            temperature=1.0,
            max_new_tokens=LENGTH,
            output_logits=True,
            return_dict_in_generate=True,
        )
        new = out.sequences[:, enc["input_ids"].shape[1] :]
        lp = torch.stack(out.logits, 1).log_softmax(-1).gather(2, new[..., None])[..., 0]
        results = []
        for tokens, values in zip(new.tolist(), lp.tolist(), strict=True):
            end = tokens.index(2) + 1 if 2 in tokens else len(tokens)
            results.append({"completion_ids": tokens[:end], "completion_logprobs": values[:end]})
        return results


def forward_logprobs(model, prompt, completion):
    ids = torch.tensor([prompt + completion])
    logits = model(ids).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[torch.arange(len(completion)), torch.tensor(completion)]


torch.manual_seed(81)
tokenizer = word_tokenizer()
policy = small_llama(81)
engine = ChatEngine(policy.parameters())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
tasks = questions(PROMPTS * UPDATES, seed=81)

for update in range(UPDATES):
    losses, seen = [], []
    for text, nouns in tasks[update * PROMPTS : (update + 1) * PROMPTS]:
        messages = [{"role": "user", "content": text}]
        samples = engine.chat([messages] * GROUP)
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        prompt = list(prompt["input_ids"] if hasattr(prompt, "keys") else prompt)
        rewards = torch.tensor(
            [
                sum(tokenizer.convert_tokens_to_ids(n) in s["completion_ids"] for n in nouns)
                - 0.02 * len(s["completion_ids"])
                for s in samples
            ]
        )
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        for sample, advantage in zip(samples, advantages, strict=True):
            lp = forward_logprobs(policy, prompt, sample["completion_ids"])
            ratio = (lp - lp.detach()).exp()
            losses.append(-(ratio * advantage).sum() / LENGTH)
        seen.append(rewards.mean().item())
    loss = torch.stack(losses).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    engine.sync(policy.parameters())
    print(f"update {update:2d} | reward {sum(seen) / len(seen):.3f} | loss {loss.item():.4f}")
