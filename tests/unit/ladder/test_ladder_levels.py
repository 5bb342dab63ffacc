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
    assert settings["trainer_args.optim"] == "adamw_torch"
    assert settings["num_workers"] == 0
    assert settings["trainer_args.torch_compile"] is False
    assert settings.get("fixed_length", False) is (trainer in ONLINE_TRAINERS)


def test_liger_is_not_for_ppo_whose_loop_does_not_apply_it() -> None:
    assert "liger kernels" in {switch.name for switch in Job(config_of("sft"), CPU).switches}
    assert "liger kernels" not in {switch.name for switch in Job(config_of("ppo"), CPU).switches}


def test_the_rows_of_a_kto_micro_batch_stay_together() -> None:
    """Its KL term is estimated from neighbours: other micro-batches learn something else."""
    names = {switch.name for switch in Job(config_of("kto"), CPU).switches}
    assert "micro-batch" not in names


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
    reasons = {
        switch.name: switch.options(config, replace(CPU, compiler=False))[1] for switch in SWITCHES
    }
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
    ("dpo", {"dataloader_prefetch_factor": 2}, "data workers with prefetch", ""),
    ("sft", {"torch_compile": False}, "torch.compile", "torch_compile"),
    ("grpo", {"use_liger_kernel": True}, "liger kernels", ""),
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


def test_a_loss_that_is_a_mean_over_a_micro_batch_keeps_its_rows_together() -> None:
    config = config_of("dpo", trainer_args={"loss_type": ["sigmoid", "sft"]})
    job = Job(config, CPU)
    reasons = {one.name: job.left_out(one) for one in job.switches}
    assert "mean over the tokens of a micro-batch" in reasons["micro-batch"]


def test_flash_attention_comes_from_where_it_is_installed() -> None:
    config = config_of("sft")
    hub = {"attn_implementation": "kernels-community/flash-attn2"}
    assert flash_kernels(config, GPUS) == [hub]
    assert isinstance(flash_kernels(config, CPU), str)
