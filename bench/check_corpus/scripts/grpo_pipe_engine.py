"""GRPO with a sampler in a process of its own. The weights are sent after every update."""

import copy
import multiprocessing
import random

import torch
from common_pairs import questions, small_llama, word_tokenizer


class SamplerProcess:
    """A child process holds a copy of the policy; requests and answers go through a pipe."""

    def __init__(self, factory, pad, eos):
        context = multiprocessing.get_context("fork")
        self.connection, remote = context.Pipe()
        self.child = context.Process(
            target=self.loop, args=(remote, factory, pad, eos), daemon=True, name="sampler"
        )
        self.child.start()

    @staticmethod
    def loop(connection, factory, pad, eos):
        torch.set_num_threads(1)
        model = factory().eval().requires_grad_(False)
        generator = torch.Generator().manual_seed(2024)
        while (request := connection.recv()) is not None:
            if request["do"] == "set_weights":
                model.load_state_dict({k: torch.tensor(v) for k, v in request["weights"].items()})
                connection.send(request["version"])
                continue
            ids, mask = torch.tensor(request["ids"]), torch.tensor(request["mask"])
            start, cache = ids.shape[1], None
            alive = torch.ones(ids.shape[0], 1, dtype=torch.bool)
            logprobs = []
            for _ in range(request["max_tokens"]):
                positions = mask.cumsum(1) - 1
                step = ids if cache is None else ids[:, -1:]
                out = model(
                    input_ids=step,
                    attention_mask=mask,
                    past_key_values=cache,
                    use_cache=True,
                    position_ids=positions[:, -step.shape[1] :].clamp(min=0),
                )
                cache = out.past_key_values
                lp = (out.logits[:, -1] / request["temperature"]).log_softmax(-1)
                token = torch.multinomial(lp.exp(), 1, generator=generator)
                token = torch.where(alive, token, pad)
                logprobs.append(lp.gather(1, token) * alive)
                ids = torch.cat([ids, token], 1)
                mask = torch.cat([mask, alive.long()], 1)
                alive = alive & (token != eos)
                if not alive.any():
                    break
            connection.send(
                {
                    "tokens": ids[:, start:].tolist(),
                    "mask": mask[:, start:].tolist(),
                    "logprobs": torch.cat(logprobs, 1).tolist(),
                }
            )

    def set_weights(self, model, version):
        weights = {k: v.detach().numpy() for k, v in model.state_dict().items()}
        self.connection.send({"do": "set_weights", "weights": weights, "version": version})
        assert self.connection.recv() == version

    def generate(self, ids, mask, **sampling):
        self.connection.send(
            {"do": "generate", "ids": ids.tolist(), "mask": mask.tolist(), **sampling}
        )
        return {k: torch.tensor(v) for k, v in self.connection.recv().items()}

    def close(self):
        self.connection.send(None)
        self.child.join(10)


def policy_logprobs(model, ids, mask, new, temperature):
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    logits = logits[:, -new - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(2, ids[:, -new:, None]).squeeze(2)


def main(updates=8, prompts=3, n=4, temperature=0.9, kl=0.02):
    torch.set_num_threads(1)
    tok = word_tokenizer("left")
    sampler = SamplerProcess(lambda: small_llama(121), tok.pad_token_id, tok.eos_token_id)
    policy = small_llama(121)
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    sampler.set_weights(policy, 0)
    rows = questions(updates * prompts, seed=121)
    random.Random(121).shuffle(rows)
    for update in range(1, updates + 1):
        some = [rows.pop() for _ in range(prompts)]
        some = [row for row in some for _ in range(n)]
        enc = tok([f"<s> <user> {t} <bot>" for t, _ in some], padding=True, return_tensors="pt")
        out = sampler.generate(
            enc["input_ids"], enc["attention_mask"], temperature=temperature, max_tokens=12
        )
        ids = torch.cat([enc["input_ids"], out["tokens"]], 1)
        mask = torch.cat([enc["attention_mask"], out["mask"]], 1)
        keep, new = out["mask"], out["tokens"].shape[1]
        rewards = []
        for (_, nouns), line in zip(some, out["tokens"].tolist(), strict=True):
            words = tok.convert_ids_to_tokens(line)
            rewards.append(sum(w in words for w in nouns) + 0.2 * ("</s>" in words))
        rewards = torch.tensor(rewards).view(prompts, n)
        adv = (
            (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        ).view(-1, 1)
        with torch.no_grad():
            ref = policy_logprobs(reference, ids, mask, new, temperature)
        lp = policy_logprobs(policy, ids, mask, new, temperature)
        ratio = (lp - out["logprobs"]).exp()
        surrogate = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
        k3 = (ref - lp).exp() - (ref - lp) - 1
        loss = -((surrogate - kl * k3) * keep).sum() / keep.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sampler.set_weights(policy, update)
        print(f"{update}: reward {rewards.mean():.3f} loss {loss.item():.5f}")
    sampler.close()


if __name__ == "__main__":
    main()
