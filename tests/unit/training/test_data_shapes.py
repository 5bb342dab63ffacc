"""The pure conversions: what real datasets hold becomes what each trainer takes."""

from __future__ import annotations

import itertools

import pytest

from canary.config.trainers import TRAINERS
from canary.errors import InputError
from canary.inputs.embedded import data_file
from canary.inputs.row_shapes import (
    SHAPES,
    converter_for,
    is_raw_conversation,
    shape_of,
    split_messages,
    split_raw_pair,
    split_raw_single,
    unpaired,
)

CHOSEN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: 2+2?\n\nAssistant: 4, of course"
REJECTED = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: 2+2?\n\nAssistant: 5"


def test_raw_pair_is_cut_after_the_last_common_assistant_marker() -> None:
    row = split_raw_pair(CHOSEN, REJECTED)
    assert row == {
        "prompt": "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: 2+2?\n\nAssistant:",
        "chosen": " 4, of course",
        "rejected": " 5",
    }


def test_a_marker_cut_by_the_divergence_is_not_common() -> None:
    assert split_raw_pair("\n\nHuman: a\n\nAssistant: x", "\n\nHuman: a\n\nAssist") is None


def test_raw_single_takes_the_last_assistant_turn_as_completion() -> None:
    row = split_raw_single(CHOSEN)
    assert row is not None
    assert row["completion"] == " 4, of course"
    assert row["prompt"].endswith("2+2?\n\nAssistant:")


@pytest.mark.parametrize("text", ["Hello", "\n\nHuman: no answer yet", None, ["message"]])
def test_other_values_are_not_raw_conversations(text: object) -> None:
    assert not is_raw_conversation(text)


def test_message_pair_is_split_where_the_lists_diverge() -> None:
    user = {"role": "user", "content": "2+2?"}
    good = {"role": "assistant", "content": "4"}
    bad = {"role": "assistant", "content": "5"}
    assert split_messages([user, good], [user, bad]) == {
        "prompt": [user],
        "chosen": [good],
        "rejected": [bad],
    }
    assert split_messages([user, good], [user, good]) == {
        "prompt": [user],
        "chosen": [good],
        "rejected": [good],
    }
    assert split_messages([good], [bad]) is None


@pytest.mark.parametrize(
    ("training_type", "row", "expected"),
    [
        ("sft", {"prompt": "p", "completion": "c", "id": 1}, {"prompt": "p", "completion": "c"}),
        (
            "sft",
            {"prompt": "p", "chosen": "c", "rejected": "r"},
            {"prompt": "p", "completion": "c"},
        ),
        ("sft", {"messages": [{"role": "user"}]}, {"messages": [{"role": "user"}]}),
        (
            "dpo",
            {"prompt": "p", "chosen": "c", "rejected": "r", "id": 1},
            {"prompt": "p", "chosen": "c", "rejected": "r"},
        ),
        ("grpo", {"prompt": "p", "answer": "4"}, {"prompt": "p", "answer": "4"}),
        ("dpo", {"prompt": None, "chosen": [], "rejected": []}, None),
        (
            "kto",
            {"prompt": "p", "completion": "c", "label": 1, "id": 1},
            {"prompt": "p", "completion": "c", "label": True},
        ),
        ("kto", {"prompt": "p", "completion": "c", "label": None}, None),
        (
            "reward",
            {"prompt": "p", "chosen": "c", "rejected": "r", "id": 1},
            {"prompt": "p", "chosen": "c", "rejected": "r"},
        ),
        ("reward", {"chosen": "c", "rejected": "r", "id": 1}, {"chosen": "c", "rejected": "r"}),
    ],
)
def test_each_trainer_gets_the_columns_it_takes(
    training_type: str, row: dict[str, object], expected: dict[str, object] | None
) -> None:
    assert converter_for(training_type, list(row), row, "d")(row) == expected


def test_grpo_of_raw_conversations_takes_the_prompt_and_keeps_the_answer() -> None:
    row = {"chosen": CHOSEN, "rejected": REJECTED, "answer": "4"}
    shaped = converter_for("grpo", list(row), row, "d")(row)
    assert shaped is not None
    assert set(shaped) == {"prompt", "answer"}


@pytest.mark.parametrize(
    ("training_type", "missing"),
    [("sft", "'completion'"), ("dpo", "'chosen', 'rejected'"), ("grpo", "'answer'")],
)
def test_missing_columns_are_named_with_those_found(training_type: str, missing: str) -> None:
    row = {"question": "2+2?", "label": "4"}
    with pytest.raises(InputError) as raised:
        converter_for(training_type, list(row), row, "my/data")
    text = str(raised.value)
    assert missing in text
    assert "'my/data'" in text
    assert "columns found: 'question', 'label'" in text
    assert "\n" not in text


def test_pairs_taken_apart_keep_every_completion_once_with_its_label() -> None:
    pairs = [{"prompt": f"p{n}", "chosen": f"good{n}", "rejected": f"bad{n}"} for n in range(5)]
    rows = unpaired(pairs)
    assert len(rows) == 10
    for pair in pairs:
        mine = [row for row in rows if row["prompt"] == pair["prompt"]]
        assert sorted((row["completion"], row["label"]) for row in mine) == [
            (pair["rejected"], False),
            (pair["chosen"], True),
        ]


def test_neighbours_of_pairs_taken_apart_have_different_prompts() -> None:
    """KTO's KL term pairs a prompt with the completion beside it, which must be another's."""
    pairs = [{"prompt": f"p{n}", "chosen": "good", "rejected": "bad"} for n in range(6)]
    prompts = [row["prompt"] for row in unpaired(pairs)]
    assert all(one != other for one, other in itertools.pairwise(prompts))


def test_every_trainer_takes_a_known_shape_and_every_shape_has_embedded_rows() -> None:
    assert {row.rows for row in TRAINERS.values()} == set(SHAPES)
    for shape in SHAPES.values():
        assert data_file(shape.embedded).exists()
    assert [shape_of(name).embedded for name in ("sft", "dpo", "grpo")] == [
        "prompt_completion",
        "preference",
        "prompt_only",
    ]
