"""Every switch of `speed` does what it says, and a training learns the same with it and without."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import adam

from canary.errors import ConfigError
from canary.training.models.model import load_model, load_tokenizer
from canary.training.trainers import build_trainer
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

ROUNDING = 2e-6
"""Relative; the largest of these pairs of trainings was 6e-7."""


def built(folder: Path, training_type: str, **changes: Any) -> Any:
    """A trainer as a launch builds it."""
    changes = {"gradient_accumulation_steps": 2, "dataset_size": 32, **changes}
    spec = make_spec(folder, training_type, **changes)
    spec.scratch_dir.mkdir(parents=True)
    return build_trainer(spec)


def figures(trainer: Any) -> list[float]:
    """Loss and gradient norm of each step."""
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [step[name] for step in steps for name in ("loss", "grad_norm")]


def trained(folder: Path, training_type: str, **changes: Any) -> list[float]:
    trainer = built(folder, training_type, **changes)
    trainer.train()
    return figures(trainer)


# The optimizer


@pytest.mark.parametrize(
    ("switch", "kernel"),
    [
        ("loop", "_single_tensor_adam"),
        ("foreach", "_multi_tensor_adam"),
        ("fused", "_fused_adam"),
    ],
)
def test_adamw_runs_the_kernel_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str, kernel: str
) -> None:
    ran: Counter[str] = Counter()
    for name in ("_single_tensor_adam", "_multi_tensor_adam", "_fused_adam"):
        original = getattr(adam, name)

        def counted(*args: Any, name: str = name, original: Any = original, **kwargs: Any) -> Any:
            ran[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(adam, name, counted)
    plain = trained(tmp_path / "plain", "sft")
    ran.clear()
    trainer = built(tmp_path / switch, "sft", speed={"optimizer": switch})
    trainer.train()
    assert set(ran) == {kernel}
    flags = {name: trainer.optimizer.optimizer.defaults[name] for name in ("foreach", "fused")}
    assert flags == {"foreach": switch == "foreach", "fused": switch == "fused"}
    assert figures(trainer) == pytest.approx(plain, rel=ROUNDING)


# Lengths


def watched(trainer: Any) -> tuple[list[set[str]], list[int]]:
    """Rows of each step, as text, and its tokens of padding; both fill as it trains."""
    steps: list[set[str]] = []
    padding: list[int] = []
    tokenizer, original = trainer.processing_class, trainer.compute_loss

    def compute_loss(model: Any, inputs: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == len(steps):
            steps.append(set())
            padding.append(0)
        steps[-1].update(tokenizer.batch_decode(inputs["input_ids"], skip_special_tokens=True))
        padding[-1] += int(inputs["attention_mask"].eq(0).sum())
        return original(model, inputs, **kwargs)

    trainer.compute_loss = compute_loss
    return steps, padding


@pytest.mark.parametrize("training_type", ["sft", "dpo"])
def test_sorted_rows_are_the_same_rows_a_step_with_less_padding(
    tmp_path: Path, training_type: str
) -> None:
    found = {}
    for lengths in (None, "bucketed", "fixed"):
        trainer = built(
            tmp_path / str(lengths),
            training_type,
            gradient_accumulation_steps=4,
            speed={"lengths": lengths},
        )
        rows, padding = watched(trainer)
        trainer.train()
        found[lengths] = rows, sum(padding), figures(trainer)
    plain, bucketed, fixed = found.values()
    assert bucketed[0] == plain[0] == fixed[0]
    assert bucketed[1] < 0.7 * plain[1] < plain[1] < fixed[1]
    assert bucketed[2] == pytest.approx(plain[2], rel=ROUNDING)
    assert fixed[2] == pytest.approx(plain[2], rel=ROUNDING)


# Micro-batches


@pytest.mark.parametrize("training_type", ["sft", "dpo", "grpo"])
def test_equal_products_of_micro_batches_are_equal_updates(
    tmp_path: Path, training_type: str
) -> None:
    """Not KTO, ORPO and CPO: their losses have terms of a micro-batch."""
    extra = {"fixed_length": True} if training_type == "grpo" else {}
    whole, parts = (
        trained(
            tmp_path / f"{size}x{times}",
            training_type,
            batch_size=size,
            gradient_accumulation_steps=times,
            **extra,
        )
        for size, times in ((8, 1), (2, 4))
    )
    assert parts == pytest.approx(whole, rel=2e-5, abs=1e-6)


# Generation


def generations(trainer: Any) -> list[tuple[int, str]]:
    """Width of what each forward under `generate` reads, and the kind of its cache."""
    seen: list[tuple[int, str]] = []

    def look(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled() and inputs.get("logits_to_keep") in (None, 1):
            cache = inputs.get("past_key_values")
            seen.append((inputs["input_ids"].shape[1], type(cache).__name__))

    trainer.model.register_forward_pre_hook(look, with_kwargs=True)
    return seen


def test_caches_and_lengths_of_generation_are_those_asked_for(tmp_path: Path) -> None:
    found = {}
    fixed = {"fixed_length": True, "max_steps": 1, "max_new_tokens": 12}
    for name, switch in {
        "by itself": {},
        "cache": {"kv_cache": True},
        "none": {"kv_cache": False},
        "static": {"decode": "static"},
    }.items():
        trainer = built(tmp_path / name, "grpo", speed=switch, **fixed)
        seen = generations(trainer)
        trainer.train()
        entry = next(e for e in trainer.state.log_history if "completions/min_length" in e)
        assert entry["completions/min_length"] == entry["completions/max_length"] == 12
        found[name] = seen[:12], figures(trainer)
    widths = {name: [width for width, _ in seen] for name, (seen, _) in found.items()}
    first = widths["cache"][0]
    assert widths["by itself"] == widths["cache"] == widths["static"] == [first] + [1] * 11
    assert widths["none"] == list(range(first, first + 12))
    caches = {name: {kind for _, kind in seen} for name, (seen, _) in found.items()}
    grows, fixed_size = {"DynamicCache"}, {"StaticCache"}
    assert caches.pop("by itself") == grows, "as canary.ladder.switches takes it to be"
    assert caches == {"cache": grows, "none": {"NoneType"}, "static": fixed_size}
    for _, losses in found.values():
        assert losses == pytest.approx(found["cache"][1], rel=1e-4, abs=1e-6)


# Kernels


def test_compile_trains_through_the_compiler_to_the_same_losses(tmp_path: Path) -> None:
    """Dynamo without inductor, whose C++ takes two minutes to build."""
    plain = trained(tmp_path / "plain", "sft")
    backend = {"torch_compile_backend": "eager"}
    torch._dynamo.reset()
    trainer = built(tmp_path / "c", "sft", speed={"compile": True}, trainer_args=backend)
    trainer.train()
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert isinstance(trainer.model_wrapped, torch._dynamo.OptimizedModule)
    assert figures(trainer) == pytest.approx(plain, rel=ROUNDING)


def test_no_compiler_is_said_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler") as refused:
        built(tmp_path / "a", "grpo", speed={"decode": "compiled"})
    assert refused.value.key == "speed.decode"


def test_what_needs_a_package_or_a_gpu_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs liger-kernel"):
        built(tmp_path / "liger", "sft", speed={"liger": True})
    with pytest.raises(ConfigError, match=r"speed\.pin_memory needs a GPU"):
        built(tmp_path / "pinned", "sft", speed={"pin_memory": True})


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        ("kernels-community/flash-attn2", "pip install kernels"),
        ("flash_attention_2", "pip install flash-attn"),
    ],
)
def test_an_attention_kernel_that_cannot_be_had_says_what_to_install(
    tmp_path: Path, kernel: str, hint: str
) -> None:
    spec = make_spec(tmp_path, "sft", attn_implementation=kernel)
    with pytest.raises(
        ConfigError, match=f"attn_implementation {kernel} cannot be used"
    ) as refused:
        load_model(spec, load_tokenizer(spec))
    assert hint in str(refused.value.hint)
