"""Each question is right of a healthy loop, and finds the fault that is planted."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from canary.training.asking.again import perturbed
from canary.training.asking.observer import Asking
from tests.unit.training.asking.tiny import EOS, Loop, batch, broken, gpt2, llama


@pytest.mark.parametrize(
    "made",
    [lambda: Loop(llama()), lambda: Loop(gpt2()), lambda: Loop(llama().to(torch.bfloat16))],
    ids=["llama", "gpt2", "bfloat16"],
)
def test_nothing_is_broken_in_a_healthy_loop(made: Callable[[], Loop]) -> None:
    found = made().run()
    assert broken(found) == set()
    asked = ("neighbour", "causality", "padding_side", "next_token", "trained_padding")
    for name in asked:
        assert found[name]["status"] == "holds", found[name]
    assert all(one["words"] for one in found.values())


def few(seed: int, size: int = 13) -> dict[str, torch.Tensor]:
    made = batch(seed)
    return {**made, "input_ids": made["input_ids"] % size}


def test_a_small_vocabulary_is_asked_too() -> None:
    found = Loop(llama(vocab_size=13), batches=few).run()
    names = ("neighbour", "causality", "padding_side", "next_token")
    assert [found[name]["status"] for name in names] == ["holds"] * 4, found
    spoilt = Loop(seeing_the_future(vocab_size=13), batches=few).run()
    assert spoilt["causality"]["status"] == "broken", spoilt
    two = Loop(llama(vocab_size=2), batches=functools.partial(few, size=2)).run()
    assert two["next_token"]["words"].startswith("with 2 outputs per token, the gradient")


class Mixed(nn.Module):
    """Adds to each row what the other rows hold."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + 0.1 * hidden.mean(0, keepdim=True)


def leaking() -> Any:
    """A model whose rows see each other."""
    model = llama()
    model.model.norm = nn.Sequential(model.model.norm, Mixed())
    return model


def seeing_the_future(**changed: Any) -> Any:
    """A model without causal mask."""
    model = llama(**changed)
    for layer in model.model.layers:
        attention = layer.self_attn

        def forward(hidden_states: Any, *args: Any, own: Any = attention, **kwargs: Any) -> Any:
            kwargs["attention_mask"] = None
            own.is_causal = False
            return type(own).forward(own, hidden_states, *args, **kwargs)

        attention.forward = forward
    return model


def unmasked(seed: int) -> dict[str, torch.Tensor]:
    made = batch(seed, side="left")
    return {**made, "attention_mask": torch.ones_like(made["attention_mask"])}


def packed(seed: int) -> dict[str, torch.Tensor]:
    """Two documents per row, and positions that begin again, but one attention mask."""
    ids = torch.randint(3, 40, (2, 12), generator=torch.Generator().manual_seed(seed))
    ids[:, 5] = ids[:, 11] = EOS
    ones = torch.ones_like(ids)
    positions = torch.tensor([*range(6), *range(6)]).expand(2, 12)
    lower = torch.zeros(2, 1, 12, 12).masked_fill(torch.ones(12, 12).triu(1).bool(), -1e9)
    return {"input_ids": ids, "attention_mask": ones, "position_ids": positions, "mask": lower}


def in_blocks(seed: int) -> dict[str, torch.Tensor]:
    """The same with a mask that keeps the documents apart."""
    made = packed(seed)
    made["mask"] = made["mask"].clone()
    made["mask"][..., 6:, :6] = -1e9
    return made


class Packing(Loop):
    """Gives the model a mask of its own for rows with two documents."""

    def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
        logits = self.model(
            input_ids=one["input_ids"],
            position_ids=one["position_ids"],
            attention_mask=one["mask"],
        ).logits[:, :-1]
        return nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), one["input_ids"][:, 1:].reshape(-1)
        )


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Loop(llama(), normalised=False), "accumulation"),
        (lambda: Loop(leaking()), "neighbour"),
        (lambda: Loop(seeing_the_future()), "causality"),
        (lambda: Loop(llama(), batches=unmasked), "padding_side"),
        (lambda: Loop(gpt2(), side="left"), "padding_side"),
        (lambda: Packing(llama(), batches=packed), "packing"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_planted_fault_is_found(made: Callable[[], Loop], expected: str) -> None:
    found = made().run()[expected]
    assert found["status"] == "broken", found
    assert found["words"]


@pytest.mark.parametrize("model", [llama, gpt2])
def test_documents_in_blocks_do_not_see_each_other(model: Callable[[], Any]) -> None:
    found = Packing(model(), batches=in_blocks).run()["packing"]
    assert found["status"] == "holds", found


def adapted(**settings: Any) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], **settings)
    torch.manual_seed(1)
    return peft.get_peft_model(llama(), config)


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({}, "holds"),
        ({"lora_dropout": 0.1}, "holds"),
        ({"init_lora_weights": False}, "broken"),
        ({"init_lora_weights": "pissa"}, "not asked"),
    ],
)
def test_adapters_start_at_zero(settings: dict[str, Any], start: str) -> None:
    found = Loop(adapted(**settings)).run()
    assert found["adapter_start"]["status"] == start, found["adapter_start"]


def test_adapters_that_are_switched_off_train_as_before() -> None:
    model = adapted()
    half = [value for name, value in model.named_parameters() if "lora_A" in name]
    for value in half:
        value.requires_grad_(False)
    assert Loop(model).run()["adapter_start"]["status"] == "holds"
    assert half
    assert not any(value.requires_grad for value in half)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_training_is_left_as_it_was(dropout: float, again: bool) -> None:
    """What the questions do to the model, its gradients and random numbers is undone."""

    def trained(monkeypatch: pytest.MonkeyPatch | None = None) -> torch.Tensor:
        model = llama(attention_dropout=dropout)
        torch.manual_seed(3)
        if monkeypatch is not None:
            monkeypatch.setattr(Asking, "begin", lambda asking: None)
        Loop(model, again=again).run()
        drawn = torch.rand(3)
        return torch.cat([*(value.detach().flatten() for value in model.parameters()), drawn])

    looked = trained()
    with pytest.MonkeyPatch.context() as patch:
        assert torch.equal(looked, trained(patch))


def test_a_model_that_refuses_other_inputs_is_not_asked() -> None:
    class Strict(nn.Module):
        """Takes tensors of one width only."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, **kwargs: Any) -> Any:
            if kwargs["input_ids"].shape[1] != 10:
                raise RuntimeError("a graph of width 10")
            return self.inner(**kwargs)

    found = Loop(Strict(llama())).run()
    assert found["padding_side"]["status"] == "not asked"
    assert "a graph of width 10" in found["padding_side"]["words"]
    assert found["neighbour"]["status"] == "holds"


def test_integers_of_a_quantised_model_are_left_alone() -> None:
    model = nn.Linear(3, 2)
    model.register_parameter("codes", nn.Parameter(torch.arange(5), requires_grad=False))
    before = model.weight.detach().clone()
    with perturbed(model, 1e-3, 0):
        assert torch.equal(model.codes, torch.arange(5))
        assert not torch.equal(model.weight, before)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("inside", [True, False])
def test_rounding_is_that_of_autocast(inside: bool) -> None:
    """Accelerate switches autocast on inside the model's forward, where no caller sees it."""

    class Mixed16(Loop):
        def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
            if inside:
                return super().loss(one, tokens)
            with torch.autocast("cpu", torch.bfloat16):
                return super().loss(one, tokens)

    model = llama()
    if inside:
        model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    found = Mixed16(model).run()
    assert broken(found) == set()
    assert float(found["neighbour"]["words"].split()[-1]) > 1e-3


def test_what_is_kept_is_left_out_of_the_count_of_tensors() -> None:
    model = llama()
    model.train()
    asking = Asking(object(), again=True)
    asking.begin()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    counts, kept = [], []
    for seed in range(5):
        rows = batch(seed)
        model(**rows, labels=rows["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gc.collect()
        own = {id(one) for one in asking.tensors()}
        alive = (one for one in gc.get_objects() if isinstance(one, torch.Tensor))
        counts.append(sum(id(one) not in own for one in alive))
        kept.append(len(own))
    asking.end()
    assert kept[0] > 0
    assert len({*counts}) == 1, counts


def test_a_prefix_that_is_read_in_both_directions_is_no_fault() -> None:
    """Only answers are trained on, and those are read forwards."""

    class Prefix(Loop):
        def loss(self, one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
            ids = one["input_ids"]
            lower = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
            lower[:, :4] = True
            real = one["attention_mask"].bool()[:, None, None, :]
            mask = torch.zeros(len(ids), 1, *lower.shape).masked_fill(~(lower & real), -1e9)
            logits = self.model(input_ids=ids, attention_mask=mask).logits[:, 3:-1]
            labels = ids[:, 4:].masked_fill(one["attention_mask"][:, 4:] == 0, -100)
            return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    found = Prefix(llama()).run()["causality"]
    assert found["status"] == "holds", found
