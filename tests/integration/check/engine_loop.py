"""A GRPO loop whose engine is another process: `python engine_loop.py FAULT`.

The faults: whole (none), stale, dtype, template.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import canary

FAULT = sys.argv[1]
PROMPT, COMPLETION, GROUP, EOS = 4, 6, 4, 2
TEMPLATE = [7, 8]
"""Tokens that the engine's template puts before each prompt."""


def new_model() -> Any:
    """Return the model that policy and engine begin with."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        eos_token_id=EOS,
        bos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    return model


def engine(pipe: Any, dtype: torch.dtype, template: list[int]) -> None:
    """Answer `weights` with what is held then, and `prompts` with ids and log-probabilities."""
    torch.set_num_threads(1)
    model = new_model().to(dtype).eval()
    torch.manual_seed(1)
    while True:
        kind, given = pipe.recv()
        if kind == "weights":
            model.load_state_dict({name: torch.from_numpy(one) for name, one in given.items()})
            held = {name: one.float().numpy() for name, one in model.state_dict().items()}
            pipe.send({name: torch.from_numpy(one).to(dtype) for name, one in held.items()})
        elif kind == "prompts":
            with torch.no_grad():
                ids = torch.tensor([template + prompt for prompt in given])
                begin, known = ids.shape[1], []
                for _ in range(COMPLETION):
                    scores = model(input_ids=ids).logits[:, -1].float().log_softmax(-1)
                    drawn = torch.multinomial(scores.exp(), 1)
                    known.append(scores.gather(1, drawn))
                    ids = torch.cat([ids, drawn], dim=1)
            pipe.send((ids[:, begin:].tolist(), torch.cat(known, dim=1).tolist()))
        else:
            return


@canary.reward_function
def reward(completions: list[list[int]]) -> list[float]:
    """Return one number per completion."""
    return [sum(token % 5 for token in one) / len(one) for one in completions]


def main() -> None:
    """Train four updates."""
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    dtype = torch.bfloat16 if FAULT == "dtype" else torch.float32
    template = TEMPLATE if FAULT == "template" else []
    process = context.Process(target=engine, args=(there, dtype, template), daemon=True)
    process.start()
    policy = new_model()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    torch.manual_seed(5)
    earlier: dict[str, Any] = {}
    for update in range(4):
        weights = {name: one.detach().numpy() for name, one in policy.state_dict().items()}
        if FAULT == "stale" and update:
            weights = earlier
        here.send(("weights", weights))
        held = here.recv()
        canary.engine_weights(held)
        earlier = {name: one.detach().numpy().copy() for name, one in policy.state_dict().items()}
        prompts = torch.randint(3, 40, (1, PROMPT)).tolist() * GROUP
        here.send(("prompts", prompts))
        completions, log_probs = here.recv()
        rows = [prompt + one for prompt, one in zip(prompts, completions, strict=True)]
        canary.sampled([template + row for row in rows], log_probs, len(template) + PROMPT)
        rewards = torch.tensor(reward(completions))
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        ids = torch.tensor(rows)
        tokens = ids[:, PROMPT:]
        kept = ((tokens.eq(EOS).long().cumsum(1) - tokens.eq(EOS).long()) == 0).float()
        mask = torch.cat([torch.ones_like(ids[:, :PROMPT]), kept.long()], dim=1)
        scores = policy(input_ids=ids, attention_mask=mask).logits[:, PROMPT - 1 : -1]
        known = scores.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        ratio = (known - known.detach()).exp()
        loss = -(ratio * advantages.unsqueeze(1) * kept).sum() / kept.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item(), known.sum().item())
    here.send(("end", None))
    process.join()


if __name__ == "__main__":
    main()
