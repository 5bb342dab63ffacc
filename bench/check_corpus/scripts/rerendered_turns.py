"""Reasoning chats: every assistant turn is trained on. Spans come from rendered prefixes."""

from __future__ import annotations

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common_data import build_tokenizer, chats

# Earlier turns lose their thoughts, as in Qwen3's template.
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' and not loop.last and '</think>' in text %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|' + m['role'] + '|>\n' + text + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def with_thoughts(messages: list[dict], rng: random.Random) -> list[dict]:
    out = []
    for m in messages:
        if m["role"] == "assistant" and rng.random() < 0.8:
            m = {**m, "content": f"<think>\nLet me see.\n</think>\n{m['content']}"}
        out.append(m)
    return out


def render(tok, messages: list[dict], prompt: bool = False) -> list[int]:
    return tok.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=prompt, return_dict=False
    )


def encode(tok, messages: list[dict]) -> tuple[list[int], list[int]]:
    ids = render(tok, messages)
    labels = [-100] * len(ids)
    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        start = len(render(tok, messages[:i], prompt=True))
        end = min(len(render(tok, messages[: i + 1])), len(ids))
        labels[start:end] = ids[start:end]
    return ids, labels


def batchify(tok, part: list[tuple[list[int], list[int]]]) -> dict[str, torch.Tensor]:
    width = max(len(ids) for ids, _ in part)
    pad = lambda xs, v: xs + [v] * (width - len(xs))  # noqa: E731
    return {
        "input_ids": torch.tensor([pad(ids, tok.pad_token_id) for ids, _ in part]),
        "attention_mask": torch.tensor([pad([1] * len(ids), 0) for ids, _ in part]),
        "labels": torch.tensor([pad(labels, -100) for _, labels in part]),
    }


def main() -> None:
    rng = random.Random(0)
    torch.manual_seed(0)
    tok = build_tokenizer()
    tok.chat_template = TEMPLATE
    examples = [encode(tok, with_thoughts(m, rng)) for m in chats(64, seed=6)]
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tok),
            hidden_size=48,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    for step in range(7):
        group = examples[step * 8 : step * 8 + 8]
        micro = [batchify(tok, group[:4]), batchify(tok, group[4:])]
        n = sum((b["labels"][:, 1:] != -100).sum() for b in micro)
        total = 0.0
        for b in micro:
            loss = model(**b, num_items_in_batch=n).loss
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        print(f"{step=} loss={total:.4f} tokens={int(n)}")


if __name__ == "__main__":
    main()
