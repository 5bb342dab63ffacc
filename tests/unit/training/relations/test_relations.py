"""Each relation holds in a healthy loop and breaks where its fault is planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from canary.relations.relation import Outcome
from canary.training.relations.rounding import perturbed
from canary.training.relations.variations import vary
from tests.unit.training.relations.tiny import EOS, QUICK, Loop, batch, gpt2, llama

Outcomes = dict[str, Outcome]


def broken(found: Outcomes) -> set[str]:
    return {name for name, one in found.items() if one["status"] == "broken"}


@pytest.mark.parametrize(
    "made",
    [lambda: Loop(llama()), lambda: Loop(gpt2()), lambda: Loop(llama().to(torch.bfloat16))],
    ids=["llama", "gpt2", "bfloat16"],
)
def test_nothing_is_broken_in_a_healthy_loop(made: Callable[[], Loop]) -> None:
    found = made().run()
    assert broken(found) == set()
    for name in ("order", "neighbour", "causality", "padding", "padding_side", "attention"):
        assert found[name]["status"] == "holds", found[name]
    assert all(one["message"] for one in found.values())


class Mixed(nn.Module):
    """Adds to each row what the other rows hold."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + 0.1 * hidden.mean(0, keepdim=True)


def leaking() -> Any:
    """A model whose rows see each other."""
    model = llama()
    model.model.norm = nn.Sequential(model.model.norm, Mixed())
    return model


def seeing_the_future() -> Any:
    """A model without causal mask."""
    model = llama()
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


def groups(model: Any) -> Any:
    """Weight decay for all but one kind of norm, of three."""
    named = list(model.named_parameters())
    norms = [value for name, value in named if "post_attention" in name]
    others = [value for name, value in named if "post_attention" not in name]
    return torch.optim.AdamW(
        [{"params": others, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}], lr=1e-3
    )


def stepping_twice() -> Loop:
    loop = Loop(llama(), scheduler=False)
    loop.optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(loop.optimizer)

    def twice(update: int) -> None:
        scheduler.step()
        scheduler.step()

    loop.after_update = twice
    return loop


def shared_reference() -> Loop:
    model = llama()
    reference = llama()
    reference.load_state_dict(model.state_dict())
    reference.lm_head = model.lm_head
    return Loop(model, reference=reference)


def built_too_early() -> Loop:
    model = llama()
    for one in model.lm_head.parameters():
        one.requires_grad = False
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    for one in model.lm_head.parameters():
        one.requires_grad = True
    return Loop(model, optimizer=optimizer)


def thawed_later() -> Loop:
    """The head is thawed after the first update; the optimizer does not have it."""
    model = llama()
    model.lm_head.requires_grad_(False)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    loop = Loop(model, optimizer=optimizer)
    loop.after_update = lambda update: model.lm_head.requires_grad_(True) and None
    return loop


def left_in_evaluation() -> Loop:
    loop = Loop(llama())
    loop.after_update = lambda update: loop.model.eval() if update == 0 else None
    return loop


def counting() -> Loop:
    """A module that changes a number of its own in each call."""

    class Counting(nn.Module):
        calls = 0

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return hidden * (1 + 1e-3 * self.calls)

    model = llama()
    model.model.norm = nn.Sequential(model.model.norm, Counting())
    return Loop(model)


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


def going_on(seed: int) -> dict[str, torch.Tensor]:
    """Kept apart, but the second document begins at position 3."""
    positions = torch.tensor([*range(6), *range(3, 9)]).expand(2, 12)
    return {**in_blocks(seed), "position_ids": positions}


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
        (lambda: _with_groups(), "weight_decay"),
        (stepping_twice, "schedule"),
        (shared_reference, "reference_start"),
        (built_too_early, "frozen"),
        (thawed_later, "frozen"),
        (left_in_evaluation, "evaluation"),
        (counting, "replay"),
        (lambda: Packing(llama(), batches=packed), "packing"),
        (lambda: Packing(gpt2(), batches=going_on), "packing"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_planted_fault_breaks_its_relation(made: Callable[[], Loop], expected: str) -> None:
    loop = made()
    loop.wanted = (expected,)
    found = loop.run()[expected]
    assert found["status"] == "broken", found
    assert found["message"]


@pytest.mark.parametrize("model", [llama, gpt2])
def test_documents_in_blocks_are_the_same_alone(model: Callable[[], Any]) -> None:
    found = Packing(model(), batches=in_blocks).run()["packing"]
    assert found["status"] == "holds", found
    assert found["message"].startswith("alone and packed")


def _with_groups() -> Loop:
    model = llama()
    return Loop(model, optimizer=groups(model))


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
        ({"init_lora_weights": "pissa"}, "not applicable"),
    ],
)
def test_adapters_start_at_zero(settings: dict[str, Any], start: str) -> None:
    found = Loop(adapted(**settings)).run()
    assert found["adapter_start"]["status"] == start, found["adapter_start"]
    assert found["merge"]["status"] == "holds", found["merge"]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_training_is_left_as_it_was(dropout: float) -> None:
    """What the relations do to the model, its gradients and random numbers is undone."""

    def trained(wanted: Sequence[str]) -> torch.Tensor:
        model = llama(attention_dropout=dropout)
        torch.manual_seed(3)
        Loop(model, wanted=wanted).run()
        return torch.cat([value.detach().flatten() for value in model.parameters()])

    assert torch.equal(trained([]), trained(QUICK))


def test_a_model_that_refuses_other_inputs_is_undecided() -> None:
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
    assert found["padding"]["status"] == "undecided"
    assert "a graph of width 10" in found["padding"]["message"]
    assert found["order"]["status"] == "holds"


def test_integers_of_a_quantised_model_are_left_alone() -> None:
    model = nn.Linear(3, 2)
    model.register_parameter("codes", nn.Parameter(torch.arange(5), requires_grad=False))
    before = model.weight.detach().clone()
    with perturbed(model, 1e-3, 0):
        assert torch.equal(model.codes, torch.arange(5))
        assert not torch.equal(model.weight, before)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize(("optim", "why"), [("adamw_torch", None), ("sgd", "is not AdamW")])
def test_only_adamw_is_fused(optim: str, why: str | None) -> None:
    trainer = SimpleNamespace(args=SimpleNamespace(optim=optim), optimizer=None)
    found = vary(trainer, {"arguments": {"optim": "adamw_torch_fused"}}, Path())
    assert found is None if why is None else why in str(found)
    assert trainer.args.optim == ("adamw_torch_fused" if why is None else optim)


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
    assert found["attention"]["tolerance"] is not None
    assert found["attention"]["tolerance"] > 1e-3
