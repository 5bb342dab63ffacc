"""Which batches a plain loop has: what a loader yields, and what enters the model of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from canary.training.collectors.batches import describe_batch
from canary.training.collectors.named import Named
from canary.training.torch_loop.batches import LoaderBatches, Made, as_tokens, entering, fed

IDS = torch.arange(12).view(3, 4)
LABELS = IDS + 1


class Net(nn.Module):
    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> None:
        """Take two tensors."""


def entered(*args: Any, **kwargs: Any) -> Named:
    return entering(Net(), args, kwargs)


def test_each_backward_takes_the_oldest_batch_of_each_loader() -> None:
    batches, one, other = LoaderBatches(), object(), object()
    for loader, batch in ((one, "a"), (other, "x"), (one, "b")):
        batches.yielded(loader, batch)
    assert [batches.take() for _ in range(3)] == [["a", "x"], ["b"], []]


def test_what_the_loop_takes_out_of_a_batch_still_belongs_to_it() -> None:
    """torchtune: `labels = batch.pop("labels")`."""
    batches = LoaderBatches()
    batch = {"tokens": IDS, "labels": LABELS}
    batches.yielded(object(), batch)
    batch.pop("labels")
    batch["tokens"] = IDS + 2
    (found,) = batches.take()
    assert [*as_tokens(found, embeds=True)] == ["input_ids", "labels"]
    assert found["tokens"].equal(IDS + 2)
    assert found["labels"] is LABELS


def test_batches_of_an_evaluation_are_not_trained_on() -> None:
    batches, train, test = LoaderBatches(), object(), object()
    batches.yielded(train, "kept")
    batches.yielded(test, "evaluated")
    batches.doubted()
    assert batches.take() == ["kept"]
    batches.yielded(test, "evaluated")
    batches.doubted()
    batches.yielded(train, "trained in evaluation mode")
    batches.doubted()
    assert batches.take() == ["trained in evaluation mode"]


def test_pairs_under_their_plain_names_are_no_labels() -> None:
    found = as_tokens({"chosen": IDS, "rejected": LABELS}, embeds=True)
    assert [*found] == ["chosen_input_ids", "rejected_input_ids"]
    assert describe_batch(found, None)["input_tokens"] == 24
    assert "label_tokens" not in describe_batch(found, None)


def test_the_tensors_of_a_call_enter_by_name_but_for_those_with_a_gradient() -> None:
    found = entered(IDS, targets=LABELS)
    assert [*found] == ["idx", "targets"]
    assert [*entered({"input_ids": IDS, "length": 3})] == ["input_ids"]
    floats = entered(IDS.float(), targets=[LABELS])
    assert [*floats] == ["idx", "targets_0"]
    assert entered(IDS.float().requires_grad_()) == {}


def test_outputs_of_the_model_and_losses_made_of_them_are_known() -> None:
    made, weight = Made(), torch.ones(3, requires_grad=True)
    out, other = weight * 2, (weight * 3).sum()
    loss = out.sum()
    made.add({"logits": [out], "loss": loss})
    assert made.holds(out.detach()[:2])
    assert not made.holds(out.detach() + 0)
    assert made.computed(loss)
    assert made.computed((loss / 4 + loss) * torch.tensor(2.0))
    assert not made.computed(other)
    assert not made.computed(loss + other)
    assert not made.computed(torch.tensor(1.0))


def fed_sha256(batch: Any, into: Any) -> str | None:
    return fed(batch, into).get("fed_sha256")


def test_floats_that_the_loop_makes_of_its_batch_show_in_what_enters() -> None:
    images = {"0": torch.arange(12, dtype=torch.uint8).view(3, 4), "1": torch.ones(3)}
    scaled = fed(images, entered(images["0"] / 255))
    assert [*scaled] == ["fed_floats_sha256"]
    assert scaled != fed(images, entered(images["0"] / 256))
    assert fed(images, entered(torch.ones(4, 4))) == {}, "other rows"


def test_sequences_without_names_get_those_of_a_trainer_if_the_model_embeds() -> None:
    batch = (IDS, LABELS, torch.tensor([0, 1, 1]))
    assert [*as_tokens(batch, embeds=True)] == ["input_ids", "labels", "2"]
    assert [*as_tokens(batch, embeds=False)] == ["0", "1", "2"]
    classes = {"text": IDS, "labels": torch.tensor([0, 1, 1])}
    assert [*as_tokens(classes, embeds=True)] == ["text", "labels"]
    labelled = {"labels": LABELS, "words": IDS, "mask": IDS.bool()}
    assert [*as_tokens(labelled, embeds=True)] == ["labels", "input_ids", "mask"]


@pytest.mark.parametrize("real", [[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
def test_a_mask_without_a_name_is_no_labels(real: list[int]) -> None:
    mask = torch.tensor([real] * 3)
    known: dict[str, bool] = {}
    batch = (IDS, mask, LABELS)
    names = ["input_ids", "attention_mask", "labels"]
    assert [*as_tokens(batch, embeds=True, masks=known)] == names
    assert known == {"1": True, "2": False}
    assert [*as_tokens((IDS, mask), embeds=True)] == names[:2]
    tags = torch.tensor([[1, 0, 1, 0]] * 3)
    assert [*as_tokens((IDS, tags), embeds=True)] == ["input_ids", "labels"]
    assert [*as_tokens((IDS % 2, mask), embeds=True)] == ["input_ids", "labels"]


def test_what_the_loop_changes_after_its_loader_shows_in_what_enters() -> None:
    batch = as_tokens((IDS, LABELS), embeds=True)
    same = fed_sha256(batch, entered(IDS, LABELS))
    assert same == fed_sha256(batch, entered(IDS.int(), targets=LABELS))
    assert same is not None
    assert same != fed_sha256(batch, entered(IDS, LABELS.roll(1, 1)))
    assert same != fed_sha256(batch, entered(IDS))
    shorter = fed_sha256(batch, entered(IDS[:, :-1], IDS[:, 1:]))
    assert None is not shorter != fed_sha256(batch, entered(IDS[:, :-1], IDS[:, 1:].roll(1, 1)))


@pytest.mark.parametrize("other", [IDS.repeat(1, 2), IDS.repeat(2, 1), torch.tensor(3)])
def test_what_does_not_come_from_the_batch_is_not_counted(other: torch.Tensor) -> None:
    """Completions are longer than their prompts, or have other rows: a policy generates them."""
    batch = as_tokens((IDS, LABELS), embeds=True)
    assert fed_sha256(batch, entered(other)) is None
    assert fed_sha256(batch, entered(IDS, other)) == fed_sha256(batch, entered(IDS))


def test_batches_that_a_resumed_loop_skips_are_not_trained_on() -> None:
    batches, loader = LoaderBatches(), object()
    rows = [(IDS + number, LABELS + number) for number in range(4)]
    for one in rows[:3]:
        batches.yielded(loader, one)
    batches.entered(entered(rows[2][0][:, 1:]))
    (found,) = batches.take()
    assert found is rows[2], "a part of its tensor entered"
    batches.yielded(loader, rows[3])
    batches.entered(entered(rows[3][0] + 0))
    assert batches.take() == [rows[3]], "a copy says nothing"


def test_a_tensor_without_memory_is_no_batch() -> None:
    class Traced(torch.Tensor):
        def data_ptr(self) -> int:
            raise RuntimeError("Cannot access data pointer")

    batches, traced = LoaderBatches(), IDS.as_subclass(Traced)
    batches.yielded(object(), {"input_ids": traced})
    batches.entered({"idx": traced})
    assert len(batches.take()) == 1
