"""Batches that hold lists, or are nested: they are recorded like those of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from canary import Recorder
from canary.record.folder import load_record
from canary.training.collectors.batches import count_tokens, describe_batch, parts
from canary.training.collectors.named import hashable, named, with_nested

IDS = [[5, 6, 7], [8, 9, 10]]
RAGGED = [[5, 6, 7], [8]]


def described(batch: Any) -> Any:
    return describe_batch(hashable(named(batch)), None)


def counts(batch: Any) -> dict[str, int]:
    return {name: int(value) for name, value in count_tokens(named(batch)).items()}


def test_lists_in_a_nested_batch_are_those_of_the_flat_batch_of_tensors() -> None:
    nested = {"chosen": {"input_ids": IDS}, "rejected": {"input_ids": IDS[::-1]}}
    flat = {
        "chosen_input_ids": torch.tensor(IDS),
        "rejected_input_ids": torch.tensor(IDS[::-1]),
    }
    found, expected = described(nested), describe_batch(flat, None)
    assert found.pop("unpacked") == ["chosen_input_ids", "rejected_input_ids"]
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


def test_a_loop_records_its_nested_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_RLHF_CANARY_JOB", raising=False)
    with Recorder("nested", output_dir=tmp_path, look_steps=2) as recorder:
        for number in range(3):
            batch = {"chosen": {"input_ids": [[number, 1], [2]]}, "rejected": {"input_ids": IDS}}
            with recorder.step(batch) as step:
                step.loss(1.0)
    assert recorder.folder is not None
    record = load_record(recorder.folder)
    hashes = [micro["sha256"] for step in record.exact["batches"] for micro in step]
    assert len(set(hashes)) == 2
    assert record.tokens["input_tokens"] == 3 * 9
    assert "exact.batches" not in record.unmeasured


@pytest.mark.parametrize(
    ("batch", "words"), [(object(), "neither numbers nor text"), (None, "no batch")]
)
def test_a_loop_without_readable_batches_says_so(
    batch: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("_RLHF_CANARY_JOB", raising=False)
    with Recorder("opaque", output_dir=tmp_path, look_steps=2) as recorder:
        for _ in range(3):
            with recorder.step(batch) as step:
                step.loss(1.0)
    assert recorder.folder is not None
    record = load_record(recorder.folder)
    assert "batches" not in record.exact
    assert words in record.unmeasured["exact.batches"]
