"""Async-style GRPO: the sampler returns dictionaries with "token_ids" and "logprobs"."""

import torch
from common_pairs import questions, small_llama, word_tokenizer

SAMPLING = {"temperature": 1.0, "top_k": 8, "top_p": 0.9, "max_tokens": 12, "n": 4}
tokenizer = word_tokenizer("right")
PAD, EOS = tokenizer.pad_token_id, tokenizer.eos_token_id


class LLM:
    """Serves the policy. Log-probabilities are those of the distribution sampled from."""

    def __init__(self, state_dict):
        self.model = small_llama(0).eval()
        self.load_weights(state_dict)

    def load_weights(self, state_dict):
        self.model.load_state_dict({k: v.detach().clone() for k, v in state_dict.items()})

    @staticmethod
    def process(logits, temperature, top_k, top_p):
        logits = logits / temperature
        floor = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < floor, -torch.inf)
        ordered, index = logits.sort(descending=True)
        probs = ordered.softmax(-1)
        drop = probs.cumsum(-1) - probs > top_p
        return logits.scatter(0, index, ordered.masked_fill(drop, -torch.inf))

    @torch.inference_mode()
    def generate(self, prompt_ids, params):
        outputs = []
        for _ in range(params["n"]):
            ids, logprobs = list(prompt_ids), []
            while len(logprobs) < params["max_tokens"]:
                logits = self.model(torch.tensor([ids])).logits[0, -1]
                logits = self.process(
                    logits, params["temperature"], params["top_k"], params["top_p"]
                )
                lp = logits.log_softmax(-1)
                token = int(torch.multinomial(lp.exp(), 1))
                ids.append(token)
                logprobs.append(float(lp[token]))
                if token == EOS:
                    break
            outputs.append({"token_ids": ids[len(prompt_ids) :], "logprobs": logprobs})
        return outputs


def pack(samples):
    width = max(len(s["prompt"]) + len(s["token_ids"]) for s in samples)
    ids = torch.full((len(samples), width), PAD)
    attention, action, old = (torch.zeros(len(samples), width) for _ in range(3))
    for i, s in enumerate(samples):
        start, end = len(s["prompt"]), len(s["prompt"]) + len(s["token_ids"])
        ids[i, :end] = torch.tensor(s["prompt"] + s["token_ids"])
        attention[i, :end], action[i, start:end] = 1, 1
        old[i, start:end] = torch.tensor(s["logprobs"])
    advantages = torch.tensor([s["advantage"] for s in samples])
    return ids, attention.long(), action[:, 1:], old[:, 1:], advantages


def train_step(policy, optimizer, samples, eps=0.2):
    ids, attention, action, inference_logprobs, advantages = pack(samples)
    logits = policy(input_ids=ids, attention_mask=attention).logits[:, :-1]
    trainer_logprobs = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    ratio = torch.exp(trainer_logprobs - inference_logprobs)
    advantages = advantages[:, None]
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    loss = -(surrogate * action).sum() / action.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main():
    policy = small_llama(71)
    torch.manual_seed(71)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    llm = LLM(policy.state_dict())
    rows = iter(questions(24, seed=71))
    for step in range(8):
        samples = []
        for _ in range(3):
            text, nouns = next(rows)
            prompt = tokenizer(f"<s> <user> {text} <bot>")["input_ids"]
            group = llm.generate(prompt, SAMPLING)
            scores = []
            for s in group:
                words = tokenizer.convert_ids_to_tokens(s["token_ids"])
                scores.append(sum(n in words for n in nouns) - 0.05 * len(words))
            mean = sum(scores) / len(scores)
            for s, score in zip(group, scores, strict=True):
                samples.append(s | {"prompt": prompt, "advantage": score - mean})
        loss = train_step(policy, optimizer, samples)
        llm.load_weights(policy.state_dict())
        print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
