"""A small trainer of conversations whose labels, rows and loss can be spoilt."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from canary.inputs.embedded import tiny_dir
from tests.unit.training.asking.tiny import Answers, Looked, llama

IGNORE = -100
Row = dict[str, Any]
Labels = Callable[[list[int], int], list[int]]
"""Makes the labels of ids whose prompt has this length."""


@functools.cache
def tokenizer() -> Any:
    """The embedded tokenizer: `<|bos|><|user|>...<|assistant|>...<|eos|>`."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_dir())


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


WORDS = ("clock", "flag", "ocean", "ring", "mirror", "valley", "lamp", "coat", "door", "wind")


def pairs(count: int = 8) -> list[Row]:
    """Prompts with two answers, all of different lengths."""
    return [
        {
            "prompt": [said("user", f"Copy: {' '.join(WORDS[row : row + 1 + row % 3])}")],
            "chosen": [said("assistant", " ".join(WORDS[row : row + 2]))],
            "rejected": [said("assistant", " ".join(reversed(WORDS[row : row + 3])))],
        }
        for row in range(count)
    ]


def completions() -> list[Row]:
    return [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs()]


def conversations() -> list[Row]:
    """Two questions with their answers."""
    return [
        {"messages": [*row["prompt"], *row["chosen"], said("user", "Again"), *row["rejected"]]}
        for row in pairs()
    ]


def plain(rows: list[Row]) -> list[Row]:
    """The same rows as ids alone: nothing says what is prompt."""
    return [{"input_ids": rendered(row)} for row in rows]


def rendered(row: Row, side: str = "completion") -> list[int]:
    """Return the ids of a row."""
    messages = row.get("messages") or row["prompt"] + row[side]
    return list(tokenizer().apply_chat_template(messages, return_dict=True)["input_ids"])


def prompt_length(row: Row) -> int:
    made = tokenizer().apply_chat_template(
        row["prompt"], add_generation_prompt=True, return_dict=True
    )
    return len(made["input_ids"])


def answers_only(ids: list[int], prompt: int) -> list[int]:
    return [IGNORE] * prompt + ids[prompt:]


def everything(ids: list[int], prompt: int) -> list[int]:
    return [*ids]


def assistant_turns(ids: list[int], prompt: int) -> list[int]:
    """Labels from each assistant token to the next EOS."""
    assistant, eos = tokenizer().convert_tokens_to_ids(["<|assistant|>", "<|eos|>"])
    labels, inside = [], False
    for one in ids:
        labels.append(one if inside else IGNORE)
        inside = (inside and one != eos) or one == assistant
    return labels


def padded(rows: list[list[int]], filler: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


class Plain:
    """A trainer that no library knows."""

    def __init__(self, rows: list[Row], **arguments: Any) -> None:
        self.train_dataset = rows
        self.processing_class = tokenizer()
        self.args = SimpleNamespace(**arguments)
        self._metrics: dict[str, float] = {}

    def compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        known = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        logits = model(**known).logits[:, :-1]
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), inputs["labels"][:, 1:].flatten(), ignore_index=IGNORE
        )


def of_trl(base: type[Plain], name: str) -> type[Plain]:
    """A class that says it is one of trl."""
    return type(name, (base,), {"__module__": f"trl.trainer.{name.lower()}"})


SFT = of_trl(Plain, "SFTTrainer")


def collate_with(labels: Labels, **spoilt: Any) -> Callable[[list[Row]], Row]:
    """Collate conversations. `spoilt`: `ids` changes the ids of a row."""
    change: Callable[[list[int]], list[int]] = spoilt.get("ids", lambda ids: ids)

    def collate(rows: list[Row]) -> Row:
        ids = [change(row["input_ids"] if "input_ids" in row else rendered(row)) for row in rows]
        known = [prompt_length(row) if "prompt" in row else 0 for row in rows]
        made = [labels(one, prompt) for one, prompt in zip(ids, known, strict=True)]
        return {
            "input_ids": padded(ids, tokenizer().pad_token_id),
            "attention_mask": padded([[1] * len(one) for one in ids], 0),
            "labels": padded(made, IGNORE),
        }

    return collate


@dataclass
class Chat:
    """Three updates of a trainer, looked at by the questions."""

    trainer: Plain
    collate: Callable[[list[Row]], Mapping[str, Any]]
    model: Any = None
    batch_size: int = 2
    changes: dict[str, Any] = field(default_factory=dict)
    is_loop: bool = False
    """Whether the look gets no trainer, as from a loop of torch."""

    def run(self) -> Answers:
        """Train, and return the answers by question."""
        model = self.model or llama(vocab_size=len(tokenizer()), **self.changes)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        looked = Looked(object() if self.is_loop else self.trainer)
        loader = DataLoader(self.trainer.train_dataset, self.batch_size, collate_fn=self.collate)
        for _, batch in zip(range(3), loader, strict=False):
            self.trainer.compute_loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        return looked.answers()
