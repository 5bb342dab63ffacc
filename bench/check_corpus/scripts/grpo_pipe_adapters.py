"""GRPO of LoRA adapters. A second process generates; weights and samples go through a pipe."""

import multiprocessing as mp

import torch
from common_pairs import questions, small_llama, word_tokenizer
from peft import LoraConfig, get_peft_model

N, PROMPTS, STEPS, MAX_NEW = 4, 3, 8, 12


def serve(pipe, seed):
    """Generation server: ("weights", dict) | ("generate", ids, mask) | ("stop",)."""
    torch.set_num_threads(1)
    model = small_llama(seed).eval()
    torch.manual_seed(1234)
    while True:
        kind, *payload = pipe.recv()
        if kind == "stop":
            return
        if kind == "weights":
            arrays = {name: torch.from_numpy(value) for name, value in payload[0].items()}
            model.load_state_dict(arrays, strict=False)
            pipe.send("ok")
            continue
        ids, mask = torch.tensor(payload[0]), torch.tensor(payload[1])
        with torch.no_grad():
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                max_new_tokens=MAX_NEW,
                return_dict_in_generate=True,
                output_scores=True,
            )
        tokens = out.sequences[:, ids.shape[1] :]
        scores = torch.stack(out.scores, 1).log_softmax(-1)
        logprobs = scores.gather(2, tokens[:, :, None]).squeeze(2)
        pipe.send({"tokens": tokens.tolist(), "logprobs": logprobs.tolist()})


class Client:
    def __init__(self, seed):
        context = mp.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, seed), daemon=True)
        self.process.start()

    def sync(self, model):
        weights = {}
        for name, value in model.state_dict().items():
            if "lora_" in name:
                continue
            name = name.removeprefix("base_model.model.").replace(".base_layer", "")
            weights[name] = value.detach().numpy()
        self.pipe.send(("weights", weights))
        assert self.pipe.recv() == "ok"

    def generate(self, ids, mask):
        self.pipe.send(("generate", ids.tolist(), mask.tolist()))
        return self.pipe.recv()

    def close(self):
        self.pipe.send(("stop",))
        self.process.join(10)


def main():
    torch.set_num_threads(1)
    client = Client(61)
    tok = word_tokenizer("left")
    model = get_peft_model(
        small_llama(61),
        LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    torch.manual_seed(61)
    rows = questions(PROMPTS * STEPS, seed=61)
    for step in range(STEPS):
        client.sync(model)
        some = [row for row in rows[step * PROMPTS :][:PROMPTS] for _ in range(N)]
        enc = tok(["<s> " + text for text, _ in some], return_tensors="pt", padding=True)
        reply = client.generate(enc["input_ids"], enc["attention_mask"])
        answer = torch.tensor(reply["tokens"])
        eos = (answer == tok.eos_token_id).long()
        mask = (eos.cumsum(1) - eos == 0).long()
        ids = torch.cat([enc["input_ids"], answer], 1)
        attention = torch.cat([enc["attention_mask"], mask], 1)

        rewards = []
        for (_, nouns), line, keep in zip(some, answer, mask, strict=True):
            words = tok.convert_ids_to_tokens(line[keep.bool()].tolist())
            rewards.append(sum(w in nouns for w in words) + (words[-1] == "</s>") * 0.5)
        rewards = torch.tensor(rewards).view(PROMPTS, N)
        adv = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        adv = adv.view(-1, 1)

        logits = model(input_ids=ids, attention_mask=attention).logits[:, -answer.shape[1] - 1 : -1]
        lp = logits.log_softmax(-1).gather(2, answer[:, :, None]).squeeze(2)
        ratio = (lp - lp.detach()).exp()
        loss = -((ratio * adv * mask).sum(1) / mask.sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"update {step}: reward {rewards.mean():.3f}, loss {loss.item():+.4f}")
    client.close()


if __name__ == "__main__":
    main()
