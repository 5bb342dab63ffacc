"""The speed switches: the level from which each is on, its trainers and its needs; and what this
machine offers to them. `Job` says which of them a config leaves to the ladder."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from canary.config.checks import SAID_TWICE, given, speed_conflicts
from canary.config.render import scalar
from canary.config.schema import ONLINE_TRAINERS, TRAINING_TYPES, CanaryConfig
from canary.config.trainers import TRAINERS, users_of
from canary.machine.environment import cpu_model, usable_cores
from canary.machine.gpu import list_devices, visible
from canary.machine.packages import package_versions


@dataclass(frozen=True)
class Machine:
    """Devices, packages and tools that a config can use here."""

    cpu: str
    cores: int
    gpus: tuple[str, ...] = ()
    """Names of the GPUs that the config's `device` may use."""
    no_gpu: str = "no GPU"
    """Why no GPU counts."""
    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Version by package; None if it is not installed."""
    compiler: bool = False
    """Whether torch.compile can run: it needs a C++ compiler on a CPU, a C compiler and triton on a
    GPU."""

    def lacks(self, need: str) -> str:
        """Return why the machine has no `GPU`, `compiler` or package; empty if it has it."""
        if need == "GPU":
            return "" if self.gpus else self.no_gpu
        if need == "compiler":
            missing = "C compiler with triton" if self.gpus else "C++ compiler"
            return "" if self.compiler else f"no {missing}"
        return "" if self.packages.get(need) else f"{need} is not installed"

    @property
    def words(self) -> str:
        """Describe the machine in a few words."""
        where = ", ".join(self.gpus) or f"{self.cpu}, {self.cores} cores"
        return f"{where}, torch {self.packages.get('torch') or 'unknown'}"


def this_machine(config: CanaryConfig) -> Machine:
    """Inspect this machine for a config; with `device: cpu` no GPU counts."""
    packages = package_versions()
    gpus, why = _gpus(config, str(packages.get("torch")))
    chosen = os.environ.get("CC" if gpus else "CXX")
    usual = ("gcc", "clang", "cc") if gpus else ("g++", "clang++", "c++")
    compiler = any(map(shutil.which, (chosen,) if chosen else usual))
    return Machine(
        cpu=cpu_model(),
        cores=len(usable_cores() or ()) or os.cpu_count() or 1,
        gpus=gpus,
        no_gpu=why,
        packages=packages,
        compiler=compiler and (not gpus or bool(packages.get("triton"))),
    )


def _gpus(config: CanaryConfig, torch: str) -> tuple[tuple[str, ...], str]:
    if config.device == "cpu":
        return (), "the config's device is cpu"
    if torch.endswith("+cpu"):
        return (), f"torch {torch} is a CPU build"
    devices = list_devices()
    seen = visible(devices.found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    names = tuple(device.name for device in seen)
    if ":" in config.device:
        names = names[:1]
    return names, "" if names else f"no GPU: {devices.reason or 'none is visible'}"


Level = Literal["baseline", "basic", "advanced", "optimal"]
LEVELS: tuple[Level, ...] = ("baseline", "basic", "advanced", "optimal")

Settings = Mapping[str, Any]
"""Values by dotted key of a config; None leaves the key to the trainer."""
Rounding = Literal["float32", "bfloat16"]
"""The arithmetic whose rounding may change the results."""

MOST_BATCHES = 4
"""Number of micro-batch sizes to try: those nearest to the config's."""


@dataclass(frozen=True)
class Switch:
    """One optimization; it is on from its level upwards."""

    name: str
    level: Level
    keys: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Values of keys: below its level, and from its level on. `...`: not set."""
    choose: Callable[[CanaryConfig, Machine], Sequence[Settings] | str] | None = None
    """Returns settings that switch it on, where `keys` are not enough, or why there are none.
    Trials find the fastest."""
    needs: Sequence[str] = ()
    """What the machine must have, see `Machine.lacks`."""
    trainers: Sequence[str] = TRAINING_TYPES
    """Trainers for which it has a meaning and does not change what is learned."""
    rounding: Rounding = "float32"
    tried: bool = False
    """Whether short trials decide if it is on, because its gain depends on the machine."""

    @property
    def off(self) -> dict[str, Any]:
        """Settings of the levels below."""
        return {key: off for key, (off, _) in self.keys.items() if off is not ...}

    def options(self, config: CanaryConfig, machine: Machine) -> tuple[Sequence[Settings], str]:
        """Return settings that switch it on; without any, why this machine cannot do it."""
        on = {key: on for key, (_, on) in self.keys.items() if on is not ...}
        why = next(filter(None, map(machine.lacks, self.needs)), "")
        found = why or (self.choose(config, machine) if self.choose else (on,))
        return ((), found) if isinstance(found, str) else (found, "")

    def used_by(self, trainer: str) -> bool:
        """Whether it has a meaning for a trainer."""
        known = all(trainer in (users_of(key) or (trainer,)) for key in self.off)
        return trainer in self.trainers and known


@dataclass(frozen=True)
class Choice:
    """A switch with one of the settings that switch it on."""

    switch: Switch
    settings: Settings


def settings_of(choices: Sequence[Choice]) -> dict[str, Any]:
    """Return the settings of several choices; of one key the last counts."""
    return {key: value for one in choices for key, value in one.settings.items()}


def micro_batches(config: CanaryConfig, machine: Machine) -> Sequence[Settings] | str:
    """Return other ways to cut an update's rows into micro-batches; the update keeps its rows."""
    mine, rows = config.batch_size, config.batch_size * config.gradient_accumulation_steps
    if rows == 1:
        return "an update has only one row"
    if bound := config.bound_to_micro_batch:
        return f"another size would change what is learned: {bound}"
    sizes = [size for size in range(1, rows + 1) if rows % size == 0 and size != mine]
    sizes.sort(key=lambda size: (max(size, mine) / min(size, mine), -size))
    return [
        {"batch_size": size, "gradient_accumulation_steps": rows // size}
        for size in sorted(sizes[:MOST_BATCHES])
    ]


def ranks(config: CanaryConfig, machine: Machine) -> Sequence[Settings] | str:
    """Return settings with one rank per device; the update keeps its rows."""
    count, size, times = len(machine.gpus), config.batch_size, config.gradient_accumulation_steps
    if count < 2:
        return "only one device" if count else f"{machine.no_gpu}; a CPU is one device"
    if config.nproc is not None:
        return f"the config sets nproc: {config.nproc}"
    if times % count == 0:
        return [{"nproc": count, "gradient_accumulation_steps": times // count}]
    if size % count == 0:
        return [{"nproc": count, "batch_size": size // count}]
    return f"{count} devices cannot share the {size * times} rows of an update evenly"


def flash_kernels(config: CanaryConfig, machine: Machine) -> Sequence[Settings] | str:
    """Return flash attention as installed, and from the kernels hub."""
    names = {"flash-attn": "flash_attention_2", "kernels": "kernels-community/flash-attn2"}
    found = [{"attn_implementation": names[one]} for one in names if not machine.lacks(one)]
    why = machine.lacks("GPU") or "neither flash-attn nor kernels is installed"
    return found if found and machine.gpus else f"{why}; SDPA uses its default kernel"


def fixed_caches(config: CanaryConfig, machine: Machine) -> Sequence[Settings]:
    """Return a static cache without and with compiled decoding; it switches a missing cache on."""
    cache = {"speed.kv_cache": True} if config.speed.kv_cache is False else {}
    kinds = ("static", "compiled") if machine.compiler else ("static",)
    return [cache | {"speed.decode": kind} for kind in kinds]


_CUT_FREELY = tuple(name for name, row in TRAINERS.items() if not row.bound_to_micro_batch({}))
"""Trainers whose loss does not depend on which rows share a micro-batch."""

tried = functools.partial(Switch, tried=True)
SWITCHES: tuple[Switch, ...] = (
    Switch("vectorised advantages", "basic", {"speed.advantages": ("loop", "vectorised")}),
    Switch(
        "log-probabilities of completions alone",
        "basic",
        {"speed.logprobs": ("whole", "completion")},
    ),
    Switch("KV cache", "basic", {"speed.kv_cache": (False, True), "speed.decode": (None, ...)}),
    Switch(
        "rows bucketed by length",
        "basic",
        {"speed.lengths": ("fixed", "bucketed")},
        trainers=_CUT_FREELY,
    ),
    Switch("fused optimizer", "basic", {"speed.optimizer": ("loop", "fused")}),
    Switch("SDPA", "advanced", {"attn_implementation": ("eager", "sdpa")}),
    Switch("shared forward", "advanced", {"speed.shared_forward": (False, True)}),
    Switch("pinned memory", "advanced", {"speed.pin_memory": (False, True)}, needs=["GPU"]),
    tried("bfloat16", "advanced", {"dtype": ("float32", "bfloat16")}, rounding="bfloat16"),
    tried(
        "data workers with prefetch",
        "advanced",
        {"num_workers": (0, 2), "speed.prefetch": (None, 4)},
    ),
    tried("micro-batch", "advanced", choose=micro_batches, trainers=_CUT_FREELY),
    tried(
        "sampling of all prompts together", "optimal", {"speed.rollout_batch": ("micro", "whole")}
    ),
    tried("flash attention", "optimal", choose=flash_kernels, rounding="bfloat16"),
    tried(
        "static cache, compiled decoding",
        "optimal",
        choose=fixed_caches,
        trainers=ONLINE_TRAINERS,
    ),
    tried("torch.compile", "optimal", {"speed.compile": (None, True)}, needs=["compiler"]),
    tried("liger kernels", "optimal", {"speed.liger": (None, True)}, needs=["GPU", "liger-kernel"]),
    tried("one rank per device", "optimal", choose=ranks),
)
SET_BY: Mapping[str, Sequence[str]] = {
    **{f"speed.{switch}": names for switch, names in SAID_TWICE.items()},
    "speed.decode": (*SAID_TWICE["decode"], *SAID_TWICE["kv_cache"]),
}
"""Arguments in `trainer_args` by the config key that they set."""


@dataclass(frozen=True)
class Job:
    """A config on a machine, and what it leaves to the ladder."""

    config: CanaryConfig
    machine: Machine
    known: Sequence[Switch] = SWITCHES

    @property
    def switches(self) -> list[Switch]:
        """The switches that have a meaning for its trainer."""
        return [one for one in self.known if one.used_by(self.config.training_type)]

    @property
    def equal_lengths(self) -> dict[str, Any]:
        """Settings that give sampled completions equal length, so that work is equal."""
        return {"fixed_length": True} if self.config.trainer.online else {}

    @property
    def baseline(self) -> dict[str, Any]:
        """Settings with every switch off that the config leaves to the ladder, and completions of
        equal length. The other settings stay as the user set them at every level."""
        off = [one.off for one in self.switches if not self._unsuited(one)]
        return {key: value for each in off for key, value in each.items()} | self.equal_lengths

    def left_out(self, switch: Switch) -> str:
        """Return why the machine or the config excludes a switch; empty if neither does."""
        return switch.options(self.config, self.machine)[1] or self._unsuited(switch)

    def _unsuited(self, switch: Switch) -> str:
        """Return why the config does not leave a switch to the ladder; empty if it does."""
        choices, _ = switch.options(self.config, self.machine)
        for key in dict.fromkeys(key for settings in (switch.off, *choices) for key in settings):
            for name in SET_BY.get(key, ()):
                if given(self.config.trainer_args, name):
                    return f"trainer_args.{name} sets it"
        refused = self.refusal(switch.off)
        if refused or not choices:
            return refused
        reasons = [self.refusal({**switch.off, **choice}) for choice in choices]
        return reasons[0] if all(reasons) else ""

    def choices(self, switch: Switch, over: Settings) -> list[Settings]:
        """Return the choices of a switch that the config accepts on top of other settings."""
        choices, _ = switch.options(self.config, self.machine)
        return [one for one in choices if not self.refusal({**over, **one})]

    def refusal(self, settings: Settings) -> str:
        """Return why the rules of `speed` refuse settings; empty if they accept them."""
        refused = speed_conflicts(with_settings(self.config, settings))
        return next((f"{key} {message}" for key, message, _ in refused), "")


def with_settings(config: CanaryConfig, settings: Settings) -> CanaryConfig:
    """Return the config with values by dotted key, without checking them."""
    plain: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if not section:
            plain[key] = value
        elif isinstance(current := plain.get(section, getattr(config, section)), BaseModel):
            plain[section] = current.model_copy(update={name: value})
    return config.model_copy(update=plain)


def settings_words(settings: Settings) -> str:
    """`key: value, key: value`."""
    return ", ".join(f"{key}: {scalar(value)}" for key, value in settings.items())


def named(switch: Switch, choices: Sequence[Settings]) -> list[tuple[Choice, str]]:
    """Return each choice with a unique name: `micro-batch 2 4`."""
    if len(choices) == 1:
        return [(Choice(switch, choices[0]), switch.name)]
    # Values are enough: every choice of a switch sets the same keys.
    return [
        (Choice(switch, one), " ".join([switch.name, *map(scalar, one.values())]))
        for one in choices
    ]
