"""Relations about prompts, answers and pairs, in healthy and in spoilt trainings."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from canary.training.exact import fingerprints
from tests.unit.training.asking import chats
from tests.unit.training.asking.chats import (
    IGNORE,
    SFT,
    Chat,
    Plain,
    answers_only,
    assistant_turns,
    collate_with,
    completions,
    conversations,
    everything,
    plain,
    tokenizer,
)
from tests.unit.training.asking.tiny import Answers

MASKING = {"completion_only_loss": None}


def status(found: Answers) -> dict[str, str]:
    return {name: found[name]["status"] for name in HOLDS}


HOLDS = {"prompt_labels": "holds", "assistant_mask": "holds"}
WITHOUT_MASK = dict.fromkeys(HOLDS, "not asked")


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
            HOLDS,
        ),
        (
            lambda: Chat(Plain(plain(conversations())), collate_with(everything)),
            WITHOUT_MASK,
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


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Chat(SFT(completions(), **MASKING), collate_with(everything)), "prompt_labels"),
        (lambda: Chat(Plain(plain(conversations())), collate_with(first_turn)), "prompt_labels"),
    ],
    ids=[
        "prompts with labels",
        "first question only",
    ],
)
def test_a_planted_fault_breaks_its_relation(made: Callable[[], Chat], expected: str) -> None:
    found = made().run()
    assert status(found)[expected] == "broken", found


TEMPLATE = (
    "{% for one in messages %}Turn of the {{ one.role }}: {{ one.content }}{{ eos_token }}"
    "{% endfor %}"
)


@pytest.mark.parametrize(("early", "status"), [(0, "holds"), (3, "broken")])
def test_a_mask_that_begins_within_a_word_is_broken(early: int, status: str) -> None:
    """The prompt is counted too short, by a few tokens of the word before the answer."""
    written = copy.deepcopy(tokenizer())
    written.chat_template = TEMPLATE
    header = len(written(" assistant: ", add_special_tokens=False)["input_ids"])
    assert header > early + 1
    rows = []
    for row in completions():
        prompt = written.apply_chat_template(row["prompt"], tokenize=False)
        prompt += "Turn of the assistant: "
        ids = [written(one, add_special_tokens=False)["input_ids"] for one in (prompt, "clock")]
        rows.append({"prompt": len(ids[0]) - early, "input_ids": [*ids[0], *ids[1], 2]})

    def collate(rows: list[chats.Row]) -> chats.Row:
        ids = [row["input_ids"] for row in rows]
        labels = [answers_only(row["input_ids"], row["prompt"]) for row in rows]
        mask = [[1] * len(one) for one in ids]
        return {
            "input_ids": chats.padded(ids, written.pad_token_id),
            "attention_mask": chats.padded(mask, 0),
            "labels": chats.padded(labels, IGNORE),
        }

    trainer = Plain(rows)
    trainer.processing_class = written
    found = Chat(trainer, collate).run()["assistant_mask"]
    assert found["status"] == status, found


def test_the_last_answer_may_be_trained_alone() -> None:
    found = Chat(Plain(conversations()), collate_with(last_turn)).run()
    assert status(found) == HOLDS, found


@pytest.mark.parametrize(("most", "expected"), [(40, "holds"), (1, "broken")])
def test_answers_may_be_cut_if_most_are_not(most: int, expected: str) -> None:
    trainer = SFT(completions(), **MASKING, max_length=most)
    collate = collate_with(answers_only, ids=lambda ids: ids[:-1])
    found = Chat(trainer, collate, batch_size=8).run()
    assert found["eos_labels"]["status"] == expected, found
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
    monkeypatch.setattr(fingerprints, "only_tokenizer", tokenizer)
    found = Chat(Plain(completions()), left_padded(covers_padding), is_loop=True).run()
    assert found["prompt_labels"]["status"] == expected, found
