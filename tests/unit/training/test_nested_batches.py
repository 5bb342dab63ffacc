"""Batches of lists, nested ones and objects: they are recorded like those of tensors."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import BatchEncoding

from canary.training.collectors.batches import count_tokens, describe_batch, parts
from canary.training.collectors.named import Named, named, with_nested
from tests.unit.recording import Recording

IDS = [[5, 6, 7], [8, 9, 10]]
RAGGED = [[5, 6, 7], [8]]


def described(batch: Any) -> Any:
    return describe_batch(named(batch), None)


@dataclass
class Experience:
    ids: torch.Tensor
    gain: torch.Tensor
    step: int = 0
    told: Any = None

    @property
    def whole(self) -> None:
        raise AssertionError("a property of the user's object ran")

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"{name} was asked for")


class Slotted:
    __slots__ = ("_gain", "ids", "unset")

    def __init__(self, ids: torch.Tensor, gain: torch.Tensor) -> None:
        self.ids, self._gain = ids, gain

    @property
    def gain(self) -> None:
        raise AssertionError("a property of the user's object ran")


class Pair(NamedTuple):
    ids: torch.Tensor
    gain: torch.Tensor


class Dictlike(MutableMapping[str, Any]):
    """As a TensorDict: its length is that of its rows, and it has no truth value."""

    __module__ = "tensordict.base"

    def __init__(self, **tensors: Any) -> None:
        self._tensors = tensors

    def __getitem__(self, key: str) -> Any:
        return self._tensors[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._tensors[key] = value

    def __delitem__(self, key: str) -> None:
        del self._tensors[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tensors["ids"])

    def keys(self) -> Any:
        return self._tensors.keys()

    def items(self) -> Any:
        return self._tensors.items()

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise AssertionError("no truth value")


GAIN = torch.tensor([0.5, -1.0])


def shapes(batch: Any) -> dict[str, list[int]]:
    return dict(described(batch)["shapes"])


@pytest.mark.parametrize(
    "batch",
    [
        {"ids": torch.tensor(IDS), "gain": GAIN},
        Experience(torch.tensor(IDS), GAIN),
        types.SimpleNamespace(ids=torch.tensor(IDS), gain=GAIN),
        BatchEncoding({"ids": torch.tensor(IDS), "gain": GAIN}),
        Dictlike(ids=torch.tensor(IDS), gain=GAIN),
        {"ids": IDS, "gain": [0.5, -1.0]},
    ],
    ids=["mapping", "dataclass", "namespace", "encoding", "tensordict", "lists"],
)
def test_the_tensors_of_any_form_are_seen_by_name(batch: Any) -> None:
    expected = {"ids": [2, 3], "gain": [2]}
    assert shapes(batch) == expected
    inside = {f"x_{name}": shape for name, shape in expected.items()}
    assert shapes({"x": batch}) == inside
    assert described(batch)["unseen"] == (["step"] if isinstance(batch, Experience) else [])


def test_tuples_slots_and_lists_of_objects_are_seen_too() -> None:
    assert shapes(Pair(torch.tensor(IDS), GAIN)) == {"0": [2, 3], "1": [2]}
    assert shapes(Slotted(torch.tensor(IDS), GAIN)) == {"ids": [2, 3], "_gain": [2]}
    rows = [Experience(torch.tensor(row), GAIN) for row in IDS]
    assert shapes(rows) == {"0_ids": [3], "0_gain": [2], "1_ids": [3], "1_gain": [2]}


def test_an_object_that_holds_itself_or_a_whole_data_set_is_read_and_ends() -> None:
    batch = Experience(torch.tensor(IDS), GAIN)
    batch.told = [batch, iter([1]), {"rows": [object()] * 5000}]
    found = described(batch)
    assert set(found["shapes"]) == {"ids", "gain"}
    assert found["unseen"] == ["step", "told_0", "told_1", "told_2_rows"]


def test_floats_are_hashed_unless_the_model_may_have_made_them() -> None:
    tokens = {"input_ids": torch.tensor(IDS), "score": GAIN}
    given = described(tokens)
    assert (given["unseen"], [*given["shapes"]]) == (["score"], ["input_ids"])

    def of_loader(score: torch.Tensor, **more: Any) -> Any:
        batch = named({**tokens, "score": score, **more})
        batch.entered = True
        return describe_batch(batch, None)

    seen = of_loader(GAIN)
    assert seen["unseen"] == []
    assert seen["sha256"] != of_loader(1 - GAIN)["sha256"]
    assert seen["rows"] == given["rows"]
    computed = of_loader(GAIN.clone().requires_grad_())
    assert (computed["sha256"], computed["unseen"]) == (given["sha256"], [])
    sparse = of_loader(GAIN.to_sparse())
    assert (sparse["sha256"], sparse["unseen"]) == (given["sha256"], ["score"])
    rollout = Named(prompt_ids=torch.tensor(IDS), completion_ids=torch.tensor(IDS), advantages=GAIN)
    found = describe_batch(rollout, None)
    assert (found["unseen"], found["advantages"]) == ([], [0.5, -1.0])


def counts(batch: Any) -> dict[str, int]:
    return {name: int(value) for name, value in count_tokens(named(batch)).items()}


def test_lists_in_a_nested_batch_are_those_of_the_flat_batch_of_tensors() -> None:
    nested = {"chosen": {"input_ids": IDS}, "rejected": {"input_ids": IDS[::-1]}}
    flat = {
        "chosen_input_ids": torch.tensor(IDS),
        "rejected_input_ids": torch.tensor(IDS[::-1]),
    }
    found, expected = described(nested), describe_batch(flat, None)
    assert found == expected
    assert found["input_tokens"] == 12


def test_lists_of_several_lengths_are_padded_and_the_padding_is_not_counted() -> None:
    batch = named({"input_ids": RAGGED, "labels": [[-100, 6, 7], [8]]})
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 7], [8, -100, -100]]
    assert counts({"input_ids": RAGGED, "labels": [[-100, 6, 7], [8]]}) == {
        "input_tokens": 4,
        "label_tokens": 3,
    }
    wide = torch.tensor([[5, 6, 7, 0], [8, 0, 0, 0]])
    padded = {"input_ids": wide, "attention_mask": wide.ne(0).long()}
    rows = described({"input_ids": RAGGED})["rows"]
    assert rows["input_ids"] == described(padded)["rows"]["input_ids"]


def test_samples_that_nobody_collated_are_read_as_if_somebody_had() -> None:
    rows = [{"input_ids": [5, 6, 7], "text": "a"}, {"input_ids": [8], "text": "b"}]
    assert counts(rows) == {"input_tokens": 4}
    tensors = [{"input_ids": torch.tensor([5, 6, 7])}, {"input_ids": torch.tensor([8])}]
    assert named(tensors)["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert counts({"pairs": rows}) == {}
    assert named({"pairs": rows})["pairs_input_ids"].shape == (2, 3)


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": [[1], None]},
        {"input_ids": [[1, [2]], 3]},
        {"input_ids": [[2**70]]},
        {"input_ids": [[]]},
        {"completion_ids": torch.ones(2, 3), "prompt_ids": torch.ones(2, 3)},
        {"input_ids": torch.ones(2, 3), "labels": [1, "a"]},
        [{"a": 1}, {"b": 2}],
        {"x": object(), "y": {"z": object()}},
    ],
)
def test_what_cannot_be_read_breaks_nothing(batch: Any) -> None:
    described(batch)
    if isinstance(batch, dict):
        both = with_nested(batch)
        parts(both)
        describe_batch(both, None)


def test_a_batch_of_tensors_alone_is_what_it_was() -> None:
    batch = {"input_ids": torch.tensor(IDS), "texts": ["a", "b"], "count": 2}
    assert with_nested(batch) is batch
    assert named((torch.ones(2, 3), torch.tensor([1, 0]))).keys() == {"0", "1"}


def test_a_loop_records_its_nested_lists(tmp_path: Path) -> None:
    made = Recording(tmp_path, 2)
    with made.of() as recorder:
        for number in range(3):
            batch = {"chosen": {"input_ids": [[number, 1], [2]]}, "rejected": {"input_ids": IDS}}
            with recorder.step(batch) as step:
                step.loss(1.0)
    record = made.record()
    hashes = [micro["sha256"] for step in record.exact["batches"] for micro in step]
    assert len(set(hashes)) == 2
    assert record.tokens["input_tokens"] == 3 * 9
    assert "exact.batches" not in record.unmeasured


@pytest.mark.parametrize(
    ("batch", "words"), [(object(), "neither numbers nor text"), (None, "no batch")]
)
def test_a_loop_without_readable_batches_says_so(batch: Any, words: str, tmp_path: Path) -> None:
    made = Recording(tmp_path, 2)
    with made.of() as recorder:
        for _ in range(3):
            with recorder.step(batch) as step:
                step.loss(1.0)
    record = made.record()
    assert "batches" not in record.exact
    assert words in record.unmeasured["exact.batches"]


def test_a_mapping_that_computes_its_items_is_not_asked_for_them() -> None:
    """It may augment, and draw random numbers: what it stores is seen, as of other objects."""

    class Lazy(Mapping[str, Any]):
        def __init__(self) -> None:
            self.stored = {"ids": torch.tensor(IDS)}

        def __getitem__(self, name: str) -> Any:
            raise AssertionError(name)

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("its names")

        def __len__(self) -> int:
            return 1

    assert shapes(Lazy()) == {"stored_ids": [2, 3]}
