"""What the levels switch, for whom, and what a machine lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from canary.config.schema import ONLINE_TRAINERS, TRAINING_TYPES
from canary.ladder.run import ladder_at
from canary.ladder.switches import LEVELS, SWITCHES, Job, flash_kernels, micro_batches, ranks
from tests.unit.laddering import CPU, GPUS, Workshop, accepted, config_of, site


@pytest.mark.parametrize("trainer", TRAINING_TYPES)
def test_a_config_takes_every_setting_of_every_level_of_its_trainer(trainer: str) -> None:
    config = config_of(trainer)
    job = Job(config, CPU)
    settings = job.baseline
    assert accepted(config, settings)
    for switch in sorted(job.switches, key=lambda one: LEVELS.index(one.level)):
        choices, _ = switch.options(config, CPU)
        for choice in choices:
            assert accepted(config, {**settings, **choice}), (switch.name, choice)
        settings |= choices[0] if choices else {}


@pytest.mark.parametrize("trainer", TRAINING_TYPES)
def test_the_baseline_has_every_switch_off_whatever_the_config_says(trainer: str) -> None:
    settings = Job(config_of(trainer), CPU).baseline
    assert settings["dtype"] == "float32"
    assert settings["attn_implementation"] == "eager"
    assert settings["speed.optimizer"] == "loop"
    assert settings["num_workers"] == 0
    assert settings["speed.compile"] is None
    assert settings.get("fixed_length", False) is (trainer in ONLINE_TRAINERS)


@pytest.mark.parametrize("trainer", ONLINE_TRAINERS)
def test_every_switch_alone_fits_a_config_that_generates_without_a_cache(trainer: str) -> None:
    config = config_of(trainer, speed={"kv_cache": False})
    for switch in Job(config, CPU).switches:
        for choice in switch.options(config, CPU)[0]:
            assert accepted(config, choice), (switch.name, choice)


def test_what_only_ppo_computes_is_switched_for_ppo_alone() -> None:
    names = {switch.name for switch in Job(config_of("sft"), CPU).switches}
    assert "fused optimizer" in names
    assert not names & {"KV cache", "vectorised advantages", "shared forward"}


def test_the_rows_of_a_kto_micro_batch_stay_together() -> None:
    """Its KL term is estimated from neighbours: other micro-batches learn something else."""
    names = {switch.name for switch in Job(config_of("kto"), CPU).switches}
    assert not names & {"micro-batch", "rows bucketed by length"}


@pytest.mark.parametrize(("size", "times"), [(4, 2), (1, 8), (6, 2), (3, 1)])
def test_other_micro_batches_leave_an_update_its_rows(size: int, times: int) -> None:
    config = config_of("sft", batch_size=size, gradient_accumulation_steps=times)
    choices = micro_batches(config, CPU)
    assert choices
    assert not isinstance(choices, str)
    assert all(
        one["batch_size"] * one["gradient_accumulation_steps"] == size * times for one in choices
    )
    assert {"batch_size": size, "gradient_accumulation_steps": times} not in choices


def test_of_many_micro_batches_the_nearest_are_tried() -> None:
    config = config_of("sft", batch_size=8, gradient_accumulation_steps=32)
    choices = micro_batches(config, CPU)
    assert not isinstance(choices, str)
    assert [one["batch_size"] for one in choices] == [2, 4, 16, 32]


def test_what_a_cpu_lacks_is_said() -> None:
    config = config_of("ppo")
    reasons = {switch.name: switch.options(config, CPU)[1] for switch in SWITCHES}
    missing = {name for name, reason in reasons.items() if reason}
    assert missing == {
        "pinned memory",
        "flash attention",
        "torch.compile",
        "liger kernels",
        "one rank per device",
    }
    assert "none is visible" in reasons["flash attention"]
    assert "compiler" in reasons["torch.compile"]


def test_two_devices_share_the_rows_of_an_update() -> None:
    config = config_of("sft", batch_size=4, gradient_accumulation_steps=2)
    assert ranks(config, GPUS) == [{"nproc": 2, "gradient_accumulation_steps": 1}]
    config = config_of("sft", batch_size=4, gradient_accumulation_steps=1)
    assert ranks(config, GPUS) == [{"nproc": 2, "batch_size": 2}]
    config = config_of("sft", batch_size=3, gradient_accumulation_steps=1)
    assert ranks(config, GPUS) == "2 devices cannot share the 3 rows of an update evenly"


TAKEN: list[tuple[str, dict[str, Any], str, str]] = [
    ("sft", {"optim": "adafactor"}, "fused optimizer", "optim"),
    ("sft", {"packing": True}, "rows bucketed by length", "packing"),
    ("dpo", {"dataloader_prefetch_factor": 2}, "data workers with prefetch", ""),
    ("sft", {"torch_compile": False}, "torch.compile", "torch_compile"),
    ("grpo", {"generation_kwargs": {"use_cache": True}}, "KV cache", "generation_kwargs.use_cache"),
    ("grpo", {"cache_implementation": "static"}, "static cache, compiled decoding", ""),
]


@pytest.mark.parametrize(("trainer", "arguments", "name", "key"), TAKEN)
def test_what_trainer_args_set_stays_as_it_is_at_every_level(
    trainer: str, arguments: dict[str, Any], name: str, key: str
) -> None:
    config = config_of(trainer, trainer_args=arguments, num_workers=1)
    machine = replace(GPUS, compiler=True)
    launch = Workshop()
    found = ladder_at(site(config, launch, machine, rounds=1), LEVELS)
    reasons = {one.switch: one.reason for level in found.levels for one in level.skipped}
    assert reasons[name] == f"trainer_args.{key or next(iter(arguments))} sets it"
    assert accepted(config, Job(config, CPU).baseline)
    assert all(accepted(config, settings) for _, _, settings in launch.started if settings)


def test_a_collator_of_the_user_s_own_pads_as_it_likes() -> None:
    config = config_of("sft", data_collator="mine:collate")
    (switch,) = (one for one in SWITCHES if one.name == "rows bucketed by length")
    assert Job(config, CPU).left_out(switch) == "speed.lengths fixed conflicts with data_collator"


def test_a_loss_that_is_a_mean_over_a_micro_batch_keeps_its_rows_together() -> None:
    config = config_of("dpo", trainer_args={"loss_type": ["sigmoid", "sft"]})
    job = Job(config, CPU)
    reasons = {one.name: job.left_out(one) for one in job.switches}
    for name in ("micro-batch", "rows bucketed by length"):
        assert "mean over the tokens of a micro-batch" in reasons[name]


def test_flash_attention_comes_from_where_it_is_installed() -> None:
    config = config_of("sft")
    hub = {"attn_implementation": "kernels-community/flash-attn2"}
    assert flash_kernels(config, GPUS) == [hub]
    assert isinstance(flash_kernels(config, CPU), str)
