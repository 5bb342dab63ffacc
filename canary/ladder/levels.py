"""The four levels as settings of a config: what each one switches on, for which trainers, and what
the machine needs for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from canary.config.checks import bound_to_its_micro_batch
from canary.config.schema import ONLINE_TRAINERS, TRAINING_TYPES, CanaryConfig
from canary.config.trainers import TRAINERS, users_of
from canary.ladder.machine import Machine

Level = Literal["baseline", "basic", "advanced", "optimal"]
LEVELS: tuple[Level, ...] = ("baseline", "basic", "advanced", "optimal")

Settings = Mapping[str, Any]
"""Values by dotted key of a config; None leaves the key to the trainer."""
Rounding = Literal["float32", "bfloat16"]
"""The arithmetic whose rounding may change the results: float32, or bfloat16."""

MOST_BATCHES = 4
"""Number of micro-batch sizes to try: those nearest to the config's."""


def _anything(config: CanaryConfig, machine: Machine) -> str | None:
    return None


@dataclass(frozen=True)
class Switch:
    """One optimization; it is on from its level upwards."""

    name: str
    level: Level
    choices: Callable[[CanaryConfig, Machine], Sequence[Settings]]
    """Settings that switch it on; of several, trials find the fastest."""
    off: Settings | None = None
    """Settings of the levels below; None if another switch sets them."""
    trainers: Sequence[str] = TRAINING_TYPES
    """Trainers for which it has a meaning and does not change what is learned."""
    rounding: Rounding = "float32"
    tried: bool = False
    """Whether short trials decide if it is on, because its gain depends on the machine."""
    lacks: Callable[[CanaryConfig, Machine], str | None] = _anything
    """Returns why this machine cannot do it; None if it can."""

    def used_by(self, trainer: str) -> bool:
        """Whether it has a meaning for a trainer."""
        known = all(trainer in (users_of(key) or (trainer,)) for key in self.off or ())
        return trainer in self.trainers and known


def always(**settings: Any) -> Callable[[CanaryConfig, Machine], Sequence[Settings]]:
    """Return a function with one choice; `speed__kv_cache` means `speed.kv_cache`."""
    found = {key.replace("__", "."): value for key, value in settings.items()}
    return lambda config, machine: (found,)


def micro_batches(config: CanaryConfig, machine: Machine) -> Sequence[Settings]:
    """Return other ways to cut an update's rows into micro-batches; the update keeps its rows."""
    rows = config.batch_size * config.gradient_accumulation_steps
    sizes = [size for size in range(1, rows + 1) if rows % size == 0 and size != config.batch_size]
    nearest = sorted(
        sizes, key=lambda size: (max(size, config.batch_size) / min(size, config.batch_size), -size)
    )[:MOST_BATCHES]
    return tuple(
        {"batch_size": size, "gradient_accumulation_steps": rows // size}
        for size in sorted(nearest)
    )


def ranks(config: CanaryConfig, machine: Machine) -> Sequence[Settings]:
    """Return settings with one rank per device; the update keeps its rows."""
    count = len(machine.gpus)
    size, times = config.batch_size, config.gradient_accumulation_steps
    if times % count == 0:
        return ({"nproc": count, "gradient_accumulation_steps": times // count},)
    if size % count == 0:
        return ({"nproc": count, "batch_size": size // count},)
    return ()


def flash_kernels(config: CanaryConfig, machine: Machine) -> Sequence[Settings]:
    """Return flash attention as installed, and from the kernels hub."""
    found: list[Settings] = []
    if machine.has("flash-attn"):
        found.append({"attn_implementation": "flash_attention_2"})
    if machine.has("kernels"):
        found.append({"attn_implementation": "kernels-community/flash-attn2"})
    return tuple(found)


def fixed_caches(config: CanaryConfig, machine: Machine) -> Sequence[Settings]:
    """Return a static cache without and with compiled decoding; it switches a missing cache on."""
    cache = {"speed.kv_cache": True} if config.speed.kv_cache is False else {}
    found: list[Settings] = [cache | {"speed.decode": "static"}]
    if not _needs_compiler(config, machine):
        found.append(cache | {"speed.decode": "compiled"})
    return found


def _needs_gpu(config: CanaryConfig, machine: Machine) -> str | None:
    return None if machine.gpus else machine.no_gpu


def _needs_flash(config: CanaryConfig, machine: Machine) -> str | None:
    if not machine.gpus:
        return f"{machine.no_gpu}; SDPA uses its default kernel"
    if not (machine.has("flash-attn") or machine.has("kernels")):
        return "neither flash-attn nor kernels is installed; SDPA uses its default kernel"
    return None


def _needs_liger(config: CanaryConfig, machine: Machine) -> str | None:
    if not machine.gpus:
        return machine.no_gpu
    return None if machine.has("liger-kernel") else "liger-kernel is not installed"


def _needs_devices(config: CanaryConfig, machine: Machine) -> str | None:
    count = len(machine.gpus)
    if count < 2:
        return "only one device" if count else f"{machine.no_gpu}; a CPU is one device"
    if config.nproc is not None:
        return f"the config sets nproc: {config.nproc}"
    if not ranks(config, machine):
        rows = config.batch_size * config.gradient_accumulation_steps
        return f"{count} devices cannot share the {rows} rows of an update evenly"
    return None


def _needs_compiler(config: CanaryConfig, machine: Machine) -> str | None:
    if not machine.compiler:
        missing = "C compiler with triton" if machine.gpus else "C++ compiler"
        return f"no {missing}"
    return None


def _needs_choice(config: CanaryConfig, machine: Machine) -> str | None:
    if config.batch_size * config.gradient_accumulation_steps == 1:
        return "an update has only one row"
    bound = bound_to_its_micro_batch(config)
    return f"another size would change what is learned: {bound}" if bound else None


_CUT_FREELY = tuple(name for name, row in TRAINERS.items() if not row.bound_to_micro_batch({}))
"""Trainers whose loss does not depend on which rows share a micro-batch."""

SWITCHES: tuple[Switch, ...] = (
    Switch(
        "vectorised advantages",
        "basic",
        always(speed__advantages="vectorised"),
        off={"speed.advantages": "loop"},
    ),
    Switch(
        "log-probabilities of completions alone",
        "basic",
        always(speed__logprobs="completion"),
        off={"speed.logprobs": "whole"},
    ),
    Switch(
        "KV cache",
        "basic",
        always(speed__kv_cache=True),
        off={"speed.kv_cache": False, "speed.decode": None},
    ),
    Switch(
        "rows bucketed by length",
        "basic",
        always(speed__lengths="bucketed"),
        off={"speed.lengths": "fixed"},
        trainers=_CUT_FREELY,
    ),
    Switch(
        "fused optimizer",
        "basic",
        always(speed__optimizer="fused"),
        off={"speed.optimizer": "loop"},
    ),
    Switch(
        "SDPA",
        "advanced",
        always(attn_implementation="sdpa"),
        off={"attn_implementation": "eager"},
    ),
    Switch(
        "shared forward",
        "advanced",
        always(speed__shared_forward=True),
        off={"speed.shared_forward": False},
    ),
    Switch(
        "pinned memory",
        "advanced",
        always(speed__pin_memory=True),
        off={"speed.pin_memory": False},
        lacks=_needs_gpu,
    ),
    Switch(
        "bfloat16",
        "advanced",
        always(dtype="bfloat16"),
        off={"dtype": "float32"},
        rounding="bfloat16",
        tried=True,
    ),
    Switch(
        "data workers with prefetch",
        "advanced",
        always(num_workers=2, speed__prefetch=4),
        off={"num_workers": 0, "speed.prefetch": None},
        tried=True,
    ),
    Switch(
        "micro-batch",
        "advanced",
        micro_batches,
        trainers=_CUT_FREELY,
        tried=True,
        lacks=_needs_choice,
    ),
    Switch(
        "sampling of all prompts together",
        "optimal",
        always(speed__rollout_batch="whole"),
        off={"speed.rollout_batch": "micro"},
        tried=True,
    ),
    Switch(
        "flash attention",
        "optimal",
        flash_kernels,
        rounding="bfloat16",
        tried=True,
        lacks=_needs_flash,
    ),
    Switch(
        "static cache, compiled decoding",
        "optimal",
        fixed_caches,
        trainers=ONLINE_TRAINERS,
        tried=True,
    ),
    Switch(
        "torch.compile",
        "optimal",
        always(speed__compile=True),
        off={"speed.compile": None},
        tried=True,
        lacks=_needs_compiler,
    ),
    Switch(
        "liger kernels",
        "optimal",
        always(speed__liger=True),
        off={"speed.liger": None},
        tried=True,
        lacks=_needs_liger,
    ),
    Switch("one rank per device", "optimal", ranks, tried=True, lacks=_needs_devices),
)


def switches_for(config: CanaryConfig, known: Sequence[Switch] = SWITCHES) -> tuple[Switch, ...]:
    """Return the switches that have a meaning for the config's trainer."""
    return tuple(switch for switch in known if switch.used_by(config.training_type))


def baseline_settings(config: CanaryConfig, switches: Sequence[Switch]) -> dict[str, Any]:
    """Return settings with every switch off and, for online trainers, equal completion lengths."""
    found: dict[str, Any] = {}
    for switch in switches:
        found |= switch.off or {}
    return found | equal_lengths(config)


def equal_lengths(config: CanaryConfig) -> dict[str, Any]:
    """Return settings that give sampled completions equal length, so that work is equal."""
    return {"fixed_length": True} if config.trainer.online else {}
