"""What is compiled for PPO is compiled once, whatever the widths, and kept for the next launch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import GenerationConfig

from canary.training.trainers.ppo.rollout import prompt_ids
from tests.integration.ppo.watched_ppo import trained

pytestmark = pytest.mark.train

NEW = 6


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """One thread, and nothing compiled before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def widths_of(trainer: Any, found: set[tuple[int, ...]]) -> None:
    """Adds the shapes of what the update is trained on."""
    trainer.model.policy.model.embed_tokens.register_forward_hook(
        lambda module, args, out: found.add(tuple(args[0].shape)) if out.requires_grad else None
    )


def test_the_update_is_compiled_once_for_all_widths(tmp_path: Path) -> None:
    """Dynamo alone: inductor would write C++ for each of the graphs."""
    seen: set[tuple[int, ...]] = set()
    _, heard = trained(
        tmp_path / "plain",
        lambda one: widths_of(one, seen),
        max_steps=3,
        max_new_tokens=NEW,
        fixed_length=True,
    )
    assert len(seen) > 1, "the prompts of the rollouts are of several widths"
    trainer, told = trained(
        tmp_path / "compiled",
        max_steps=3,
        max_new_tokens=NEW,
        fixed_length=True,
        speed={"compile": True},
        trainer_args={"torch_compile_backend": "eager"},
    )
    assert isinstance(trainer.model_wrapped, torch._dynamo.OptimizedModule)
    assert counters["stats"]["unique_graphs"] == 1
    assert told.losses == pytest.approx(heard.losses, rel=1e-5, abs=1e-6)


@pytest.mark.skipif(
    not hasattr(GenerationConfig(), "max_cache_len"), reason="this transformers cannot be told"
)
def test_a_fixed_cache_has_one_size_in_all_rollouts(tmp_path: Path) -> None:
    """Decoding is compiled for a size, and would be compiled again for a longer prompt."""
    sizes: list[int] = []
    widths: list[int] = []

    def look(trainer: Any) -> None:
        def before(_: Any, __: Any, kwargs: dict[str, Any]) -> None:
            cache = kwargs.get("past_key_values")
            if cache is not None:
                sizes.append(cache.get_max_length())
                widths.append(kwargs["input_ids"].shape[1])

        trainer.model.policy.register_forward_pre_hook(before, with_kwargs=True)

    trainer, _ = trained(
        tmp_path, look, max_steps=4, max_new_tokens=NEW, speed={"decode": "static"}
    )
    prompts = [width for width in widths if width > 1]
    assert len(set(prompts)) > 1, "rollouts with prompts of several widths"
    tokenizer: Any = trainer.processing_class
    longest = max(len(prompt_ids(row, tokenizer)) for row in trainer.train_dataset)
    assert set(sizes) == {longest + NEW}
