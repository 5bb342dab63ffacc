"""Relations about prompts, answers and pairs, in healthy and in spoilt trainings."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from canary.relations.relation import Outcome
from canary.training.relations import tokenizers
from tests.unit.training.relations import chats
from tests.unit.training.relations.chats import (
    DPO,
    IGNORE,
    SFT,
    Chat,
    Plain,
    Reward,
    answers_only,
    assistant_turns,
    collate_pairs,
    collate_with,
    completions,
    conversations,
    everything,
    pairs,
    plain,
    tokenizer,
)

MASKING = {"completion_only_loss": None}


def status(found: dict[str, Outcome]) -> dict[str, str]:
    return {name: one["status"] for name, one in found.items()}


HOLDS = {
    "prompt_labels": "holds",
    "assistant_mask": "holds",
    "eos_labels": "holds",
    "chat_template": "holds",
}
WITHOUT_MASK = {**HOLDS, "prompt_labels": "not applicable", "assistant_mask": "not applicable"}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Chat(SFT(completions(), **MASKING), collate_with(answers_only)), HOLDS),
        (lambda: Chat(Plain(completions()), collate_with(everything)), WITHOUT_MASK),
        (
            lambda: Chat(
                SFT(conversations(), assistant_only_loss=True), collate_with(assistant_turns)
            ),
            HOLDS,
        ),
        (
            lambda: Chat(Plain(plain(conversations())), collate_with(assistant_turns)),
            {**HOLDS, "chat_template": "not applicable"},
        ),
        (
            lambda: Chat(Plain(plain(conversations())), collate_with(everything)),
            {**WITHOUT_MASK, "chat_template": "not applicable"},
        ),
    ],
    ids=[
        "trl masks prompts",
        "own trains on all",
        "assistant only",
        "ids with masks",
        "ids without masks",
    ],
)
def test_nothing_is_broken_in_a_healthy_training(
    made: Callable[[], Chat], expected: dict[str, str]
) -> None:
    found = made().run()
    assert status(found) == expected, found


def one_less(ids: list[int], prompt: int) -> list[int]:
    """A mask that covers the first token of the answer."""
    return answers_only(ids, prompt + 1)


def without_eos(ids: list[int], prompt: int) -> list[int]:
    labels = answers_only(ids, prompt)
    return [IGNORE if one == tokenizer().eos_token_id else one for one in labels]


def first_turn(ids: list[int], prompt: int) -> list[int]:
    """Masks the first question only."""
    labels = assistant_turns(ids, prompt)
    first = next(at for at, one in enumerate(labels) if one != IGNORE)
    return [IGNORE] * first + ids[first:]


def last_turn(ids: list[int], prompt: int) -> list[int]:
    """Trains on the last answer only."""
    labels = assistant_turns(ids, prompt)
    last = max(at for at, one in enumerate(labels) if one == IGNORE)
    return [IGNORE] * (last + 1) + ids[last + 1 :]


def other_form(ids: list[int]) -> list[int]:
    """A second user mark."""
    mark = tokenizer().convert_tokens_to_ids("<|user|>")
    return [one for token in ids for one in ([token, token] if token == mark else [token])]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Chat(SFT(completions(), **MASKING), collate_with(everything)), "prompt_labels"),
        (lambda: Chat(Plain(plain(conversations())), collate_with(first_turn)), "prompt_labels"),
        (lambda: Chat(Plain(completions()), collate_with(one_less)), "assistant_mask"),
        (lambda: Chat(Plain(completions()), collate_with(without_eos)), "eos_labels"),
        (
            lambda: Chat(
                Plain(completions()),
                collate_with(answers_only, ids=lambda ids: ids[: -1 if len(ids) % 2 else None]),
                batch_size=4,
            ),
            "eos_labels",
        ),
        (
            lambda: Chat(SFT(completions(), **MASKING), collate_with(answers_only, ids=other_form)),
            "chat_template",
        ),
    ],
    ids=[
        "prompts with labels",
        "first question only",
        "mask too long",
        "EOS masked",
        "EOS missing in some",
        "another form",
    ],
)
def test_a_planted_fault_breaks_its_relation(made: Callable[[], Chat], expected: str) -> None:
    found = made().run()
    assert status(found)[expected] == "broken", found


def test_the_last_answer_may_be_trained_alone() -> None:
    found = Chat(Plain(conversations()), collate_with(last_turn)).run()
    assert status(found) == HOLDS, found


def test_a_cut_answer_needs_no_eos() -> None:
    trainer = SFT(completions(), **MASKING, max_length=9)
    found = Chat(trainer, collate_with(answers_only, ids=lambda ids: ids[:9])).run()
    assert status(found)["eos_labels"] != "broken", found
    assert status(found)["prompt_labels"] == "holds", found


def left_padded(covers_padding: bool) -> Callable[[list[chats.Row]], chats.Row]:
    """Pad on the left; the mask of the prompt begins at the row or at its text."""

    def collate(rows: list[chats.Row]) -> chats.Row:
        ids = [chats.rendered(row) for row in rows]
        width = max(map(len, ids)) + 2
        made, labels = [], []
        for row, one in zip(rows, ids, strict=True):
            missing, prompt = width - len(one), chats.prompt_length(row)
            line = [tokenizer().pad_token_id] * missing + one
            covered = prompt if covers_padding else missing + prompt
            real = [token if at >= missing else IGNORE for at, token in enumerate(line)]
            made.append(line)
            labels.append([IGNORE] * covered + real[covered:])
        tensor = torch.tensor(made)
        return {
            "input_ids": tensor,
            "attention_mask": (tensor != tokenizer().pad_token_id).long(),
            "labels": torch.tensor(labels),
        }

    return collate


@pytest.mark.parametrize(("covers_padding", "expected"), [(False, "holds"), (True, "broken")])
def test_prompts_of_left_padded_ids_are_found(
    covers_padding: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop has neither a trainer nor a dataset with columns: only its tokenizer lives."""
    monkeypatch.setattr(tokenizers, "_alive", lambda: [tokenizer()])
    found = Chat(Plain(completions()), left_padded(covers_padding), is_loop=True).run()
    assert found["prompt_labels"]["status"] == expected, found


def swapped(trainer: Plain, first: str = "chosen", second: str = "rejected") -> Outcome:
    collate = functools.partial(collate_pairs, first=first, second=second)
    model = chats.scoring_model() if isinstance(trainer, Reward) else None
    return Chat(trainer, collate, wanted=("swap",), model=model).run()["swap"]


@pytest.mark.parametrize("kind", [DPO, Reward])
def test_a_swap_turns_what_is_raised(kind: type[Plain]) -> None:
    trainer = kind(pairs())
    found = swapped(trainer)
    assert found["status"] == "holds", found
    assert "swapped, both turn" in found["message"]
    assert trainer._metrics.get("calls", 3) == 3, "the question is counted as a step"


@pytest.mark.parametrize("kind", [DPO, Reward])
def test_a_collator_that_swaps_the_sides_is_broken(kind: type[Plain]) -> None:
    found = swapped(kind(pairs()), first="rejected", second="chosen")
    assert found["status"] == "broken", found
    assert found["message"] == "the loss raises a rejected answer"


def test_a_loss_with_the_wrong_sign_is_broken() -> None:
    trainer = DPO(pairs())
    trainer.sign = -1.0  # type: ignore[attr-defined]
    assert swapped(trainer)["status"] == "broken"
