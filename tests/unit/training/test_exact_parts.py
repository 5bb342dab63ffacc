"""The parts of a look, each against a plain computation."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, IterableDataset

from canary.training.collectors.aside import uncounted
from canary.training.collectors.batches import batch_sha256, count_tokens, describe_batch
from canary.training.collectors.clock import DeferredScalars, StepClock
from canary.training.exact.operators import LiveTensors, WorkCounter
from canary.training.exact.parameters import (
    UpdateCapture,
    combined,
    describe_model,
    gradient_norms,
    parameter_digests,
    rounded_to,
    tensor_digest,
)

TOKENIZER = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def test_phases_nest_and_add_up_to_the_step() -> None:
    clock = StepClock(torch.device("cpu"))
    clock.start()
    with clock.phase("forward"):
        time.sleep(0.02)
        with clock.phase("reward"):
            time.sleep(0.03)
        time.sleep(0.01)
    step = clock.close()
    phases = step.by_phase()
    assert 0.03 <= phases["reward"] <= step.wall_s() - 0.03
    assert 0.03 <= phases["forward"] <= step.wall_s() - 0.03
    assert phases["other"] < phases["forward"]
    assert sum(phases.values()) == pytest.approx(step.wall_s(), rel=1e-9)


def sft_batch() -> dict[str, Any]:
    return {
        "input_ids": torch.tensor([[1, 5, 6, 2, 0], [1, 7, 8, 9, 2]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        "labels": torch.tensor([[-100, -100, 6, 2, -100], [-100, 7, 8, 9, 2]]),
    }


def test_tokens_of_supervised_batches() -> None:
    found = describe_batch(sft_batch(), TOKENIZER)
    assert (found["input_tokens"], found["label_tokens"]) == (9, 6)
    assert (found["eos_labels"], found["bos_tokens"], found["bos_most_in_a_sequence"]) == (2, 2, 1)
    assert found["eos_inputs"] == 2
    assert found["pad_tokens"] == 1


def test_a_mask_of_whole_attention_is_none_of_padding() -> None:
    batch = sft_batch() | {"attention_mask": torch.ones(2, 1, 5, 5)}
    found = describe_batch(batch, TOKENIZER)
    assert (found["input_tokens"], found["pad_tokens"], found["eos_labels"]) == (10, 0, 2)


def test_end_labels_are_counted_where_labels_are_the_next_tokens() -> None:
    batch = sft_batch()
    batch["labels"] = torch.tensor([[-100, 6, 2, -100, -100], [7, 8, 9, 2, -100]])
    found = describe_batch(batch, TOKENIZER, frozenset((2,)))
    assert (found["eos_labels"], found["stop_labels"], found["eos_inputs"]) == (2, 2, 2)


def test_masking_eos_shows_in_labels_and_hash() -> None:
    clean, masked = sft_batch(), sft_batch()
    masked["labels"][masked["labels"] == 2] = -100
    one, two = describe_batch(clean, TOKENIZER), describe_batch(masked, TOKENIZER)
    assert (one["eos_labels"], two["eos_labels"]) == (2, 0)
    assert one["eos_inputs"] == two["eos_inputs"]
    assert one["label_tokens"] - two["label_tokens"] == 2
    assert one["sha256"] != two["sha256"]


def test_tokens_of_preference_batches() -> None:
    batch = sft_batch()
    del batch["labels"]
    batch["completion_mask"] = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])
    assert {k: int(v) for k, v in count_tokens(batch).items()} == {
        "input_tokens": 9,
        "label_tokens": 4,
    }
    assert describe_batch(batch, TOKENIZER)["eos_labels"] == 2


def test_a_prompt_that_is_begun_twice_is_counted() -> None:
    prompts = torch.tensor([[0, 1, 1, 5], [1, 5, 6, 7]])
    answers = torch.tensor([[8, 2, 0], [8, 9, 2]])
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": prompts.ne(0).long(),
        "completion_ids": answers,
        "completion_mask": answers.ne(0).long(),
    }
    found = describe_batch(batch, TOKENIZER)
    assert (found["bos_tokens"], found["bos_most_in_a_sequence"]) == (3, 2)
    assert found["rows_with_two_bos"] == 1
    assert (found["eos_labels"], found["pad_tokens"], found["sequences"]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("row", "begin"), [([0, 0, 1, 1], 1), ([1, 1, 5, 6], 1), ([0, 1, 5, 1], 0), ([0, 0, 0, 1], 0)]
)
def test_rows_that_begin_twice_are_told_from_a_sampled_bos(row: list[int], begin: int) -> None:
    ids = torch.tensor([row, [5, 1, 1, 6]])
    batch = {"input_ids": ids, "attention_mask": ids.ne(0).long()}
    assert describe_batch(batch, TOKENIZER)["rows_with_two_bos"] == begin


def test_weights_once_stored_in_a_narrow_dtype_are_known() -> None:
    layer = nn.Linear(16, 16)
    assert rounded_to(layer) is None
    with torch.no_grad():
        layer.weight.copy_(layer.weight.to(torch.bfloat16))
    assert rounded_to(layer) == str(torch.bfloat16).removeprefix("torch.")
    assert rounded_to(layer.to(torch.bfloat16)) is None


def test_tokens_of_unpaired_batches_leave_the_kl_pairs_to_the_hash() -> None:
    batch = sft_batch()
    del batch["labels"]
    mask = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])
    batch |= {"completion_mask": mask, "label": torch.tensor([True, False])}
    whole = batch | {f"KL_{name}": value.flip(0) for name, value in batch.items()}
    found = describe_batch(whole, TOKENIZER)
    assert (found["input_tokens"], found["label_tokens"], found["sequences"]) == (9, 4, 2)
    assert found["eos_labels"] == 2
    for name in ("label", "KL_input_ids"):
        other = whole | {name: ~whole[name]}
        assert describe_batch(other, TOKENIZER)["sha256"] != found["sha256"]


def pair_batch() -> dict[str, Any]:
    """As ORPO's and CPO's collator gives it: prompt and completion in one, labels beside."""
    chosen, rejected = sft_batch(), sft_batch()
    rejected["attention_mask"] = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    rejected["labels"] = torch.tensor([[-100, 5, 6, -100, -100], [-100, 7, 8, 9, 2]])
    batch: dict[str, Any] = {f"chosen_{name}": value for name, value in chosen.items()}
    batch |= {f"rejected_{name}": value for name, value in rejected.items()}
    batch["prompt_input_ids"] = torch.tensor([[1, 5], [0, 1]])
    batch["prompt_attention_mask"] = torch.tensor([[1, 1], [0, 1]])
    return batch | {"prompt": ["a", "b"]}


def test_tokens_of_pairs_apart_count_both_sides_and_no_prompt_twice() -> None:
    found = describe_batch(pair_batch(), TOKENIZER)
    assert (found["input_tokens"], found["label_tokens"], found["sequences"]) == (17, 12, 4)
    assert (found["eos_labels"], found["bos_tokens"], found["bos_most_in_a_sequence"]) == (3, 4, 1)
    assert found["pad_tokens"] == 3


def test_tokens_of_rollouts() -> None:
    batch = {
        "prompt_ids": torch.tensor([[0, 1, 5], [1, 5, 6]]),
        "prompt_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.tensor([[7, 2, 0], [8, 9, 4]]),
        "completion_mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
        "advantages": torch.tensor([0.5, -0.5]),
    }
    found = describe_batch(batch, TOKENIZER)
    assert (found["input_tokens"], found["completion_tokens"]) == (10, 5)
    assert found["eos_labels"] == 1
    assert found["advantages"] == [0.5, -0.5]


@pytest.mark.parametrize("change", ["value", "shape", "dtype", "name"])
def test_the_batch_hash_sees_every_kind_of_change(change: str) -> None:
    batch = {"input_ids": torch.tensor([[1, 2], [3, 4]])}
    other = {
        "value": {"input_ids": torch.tensor([[1, 2], [4, 3]])},
        "shape": {"input_ids": torch.tensor([[1, 2, 3, 4]])},
        "dtype": {"input_ids": torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)},
        "name": {"labels": torch.tensor([[1, 2], [3, 4]])},
    }[change]
    assert batch_sha256(batch) != batch_sha256(other)
    assert batch_sha256(batch) == batch_sha256({**batch, "advantages": torch.rand(3)})


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def test_parameter_hashes_are_plain_sha256_and_see_one_bit() -> None:
    value = torch.tensor([1.0, 2.0])
    assert tensor_digest(value, True) == hashlib.sha256(value.numpy().tobytes()).digest()
    changed = torch.tensor([1.0, 2.0000002])
    assert tensor_digest(value, True) != tensor_digest(changed, True)
    assert tensor_digest(value, False) != tensor_digest(changed, False)
    assert tensor_digest(value, False) != tensor_digest(value.flip(0), False)
    first = model()
    assert combined(parameter_digests(first)) == combined(parameter_digests(model()))


def test_a_frozen_half_shows_in_the_trainable_names() -> None:
    whole, half = model(), model()
    half[1].requires_grad_(False)
    one, two = (describe_model(m, parameter_digests(m)) for m in (whole, half))
    assert (one["trainable_tensors"], two["trainable_tensors"]) == (4, 2)
    assert one["trainable_names_sha256"] != two["trainable_names_sha256"]
    assert one["parameters_sha256"] == two["parameters_sha256"]


def test_gradient_norms_by_group_compose_to_the_total() -> None:
    net = model()
    (net(torch.ones(1, 4)) - net[1].bias).sum().backward()
    found = gradient_norms(net)
    assert found["tensors_with_zero_gradient"] == ["1.bias"]
    net[1].bias.grad += 1e-9  # what rounding leaves of terms that cancel
    assert gradient_norms(net)["tensors_with_zero_gradient"] == ["1.bias"]
    plain = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]).norm()
    assert found["total"] == pytest.approx(float(plain), rel=1e-6)
    assert sum(v**2 for v in found["groups"].values()) ** 0.5 == pytest.approx(found["total"])


def test_the_update_names_what_stood_still() -> None:
    net = model()
    part = UpdateCapture(net)
    with torch.no_grad():
        net[0].weight += 0.5
    found = part.describe(net)
    assert found["delta_norm"] == pytest.approx(0.5 * 12**0.5, rel=1e-6)
    assert found["tensors_changed"] == 1
    assert found["tensors_unchanged"] == ["0.bias", "1.bias", "1.weight"]


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 3)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.table

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.table(ids))
        return out


def test_work_counts_forwards_tokens_flops_and_host_reads() -> None:
    net = Embedded()
    part = WorkCounter(net)
    part.begin()
    loss = net(torch.zeros(2, 5, dtype=torch.long)).sum()
    loss.backward()
    loss.item()
    found = part.end()
    net(torch.zeros(1, 1, dtype=torch.long))
    assert (found["forwards"], found["tokens_fed"], found["host_reads"]) == (1, 10, 1)
    # Forward 2*10*4*3; backward the weight's gradient and the input's, the same each.
    assert found["flops"] == 3 * 2 * 10 * 4 * 3
    assert found["operator_total"] == sum(found["operators"].values())


def test_a_batch_that_arrives_from_a_worker_is_no_work_of_the_step() -> None:
    part = WorkCounter(None)
    part.begin()
    torch._utils._rebuild_tensor(torch.ones(4)._typed_storage(), 0, (4,), (1,))
    torch.empty(3)
    assert part.end()["operators"] == {"aten.empty.memory_format": 1, "aten.ones.default": 1}


def test_live_tensors_see_a_leak_exactly_and_garbage_not_at_all() -> None:
    live = LiveTensors()
    live.freeze()
    kept = []
    try:
        for _ in range(3):
            torch.ones(10)
            kept.append(torch.ones(5))
            live.count()
    finally:
        live.release()
    assert [b - a for a, b in zip(live.counts, live.counts[1:], strict=False)] == [1, 1]
    assert live.bytes[1] - live.bytes[0] == 20


class Endless(IterableDataset[int]):
    """A stream without a length."""

    def __iter__(self) -> Iterator[int]:
        yield from itertools.repeat(1)


def test_live_tensors_are_counted_while_workers_read_a_stream() -> None:
    batches = iter(DataLoader(Endless(), batch_size=2, num_workers=1))
    live = LiveTensors()
    live.freeze()
    try:
        next(batches)
        live.count()
    finally:
        live.release()
    assert len(live.counts) == 1


def test_a_scalar_is_what_it_was_when_it_was_handed_over() -> None:
    loss = torch.tensor(1.5, requires_grad=True)
    scalars = DeferredScalars({"loss": loss, "rows": 3})
    with torch.no_grad():
        loss += 1
    assert scalars.is_ready()
    assert scalars.read() == {"loss": 1.5, "rows": 3}


def test_a_mode_of_the_users_sees_no_operator_of_the_canary() -> None:
    seen: list[str] = []

    class Seeing(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with torch.device("meta"), Seeing():
        with uncounted():
            assert torch.ones(2).sum().device.type == "cpu"
        assert seen == []
        assert torch.ones(2).device.type == "meta"
    assert seen
