"""Config checks that need more than one key: unused keys, conflicts, needs of speed switches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.config.redaction import HIDDEN, missing_secret
from canary.config.schema import CanaryConfig
from canary.config.spans import look_steps
from canary.config.trainer_rules import Refusal
from canary.config.trainers import EXEC_KEYS, OWN_KEYS, users_of
from canary.errors import ConfigError


def unused(values: Mapping[str, Any], config: CanaryConfig) -> Iterator[Refusal]:
    """Yield the given keys that the chosen trainer would ignore."""
    given = {key for key, value in values.items() if value not in (None, [], ())}
    given -= set() if config.fixed_length else {"fixed_length"}
    given |= {f"speed.{key}" for key, value in config.speed if value is not None}
    trainer = config.training_type
    yield from _of_command(given, config)
    for key in sorted(given):
        users = users_of(key)
        if users and trainer not in users:
            hint = f"remove it; {_listed(users)} use{'s' if len(users) == 1 else ''} it"
            yield key, f"is not used by training_type {trainer}", hint
    for key in ("lora_r", "lora_alpha", "lora_dropout"):
        if key in given and not config.use_peft:
            yield key, "has no effect without adapters", "set use_peft: true, or remove it"
    for key, value in config.trainer_args.items():
        if same := OWN_KEYS.get(key):
            used = trainer in (users_of(same) or (trainer,))
            hint = f"set {same} instead" if used else f"remove it; {trainer} does not use {same}"
            yield f"trainer_args.{key}", f"is set by the config key {same}", hint
        if not _is_plain(value):
            message = f"is a {type(value).__name__}, which JSON lacks"
            yield f"trainer_args.{key}", message, "quote it, or write a list"


def _listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _of_command(given: set[str], config: CanaryConfig) -> Iterator[Refusal]:
    """Yield keys of the built-in trainers beside a command, and a command that cannot run."""
    ignored = f"is not used by training_type {config.training_type}"
    if config.training_type != "exec":
        if config.imports is not None:
            yield "import", ignored, "give the command that trains, or remove it"
        if config.command:
            yield "command", ignored, "set training_type: exec, or remove one of the two"
        return
    if not config.command:
        hint = "write command: [python, train.py], or use canary exec -- python train.py"
        yield "training_type", "is exec, which needs a command", hint
    if missing := missing_secret(config.command):
        message = f"has {HIDDEN} as the value of {missing}: run folders hide secrets"
        hint = "write the real value, or let the command read it from the environment"
        yield "command", message, hint
    for key in sorted(given - set(EXEC_KEYS)):
        yield key, ignored, "remove it; set it in the command"


def _is_plain(value: Any) -> bool:
    """Return whether JSON can hold the value; YAML also has dates, sets and bytes."""
    if isinstance(value, list | dict):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, str | int | float)


def conflicts(config: CanaryConfig) -> Iterator[Refusal]:
    """Yield the values that exclude each other."""
    if config.imports is not None:
        yield from _of_import(config)
    if config.exact and not config.look_steps:
        yield "exact", "is true and look_steps is 0: nothing would be recorded", "remove one"
    if config.exact and config.profiler.enabled:
        yield "profiler.enabled", "needs timed steps, but exact is true", "remove one of the two"
    if config.load_in_4bit and config.load_in_8bit:
        yield "load_in_4bit", "and load_in_8bit exclude each other", "keep one of them"
    for key in ("load_in_4bit", "load_in_8bit"):
        if getattr(config, key) and not config.use_peft:
            yield key, "needs an adapter", "set use_peft: true"
    yield from _of_sources(config)
    yield from _of_steps(config)
    prompt, longest = config.max_prompt_length, config.max_length
    if prompt is not None and longest is not None and prompt >= longest:
        message = f"({prompt}) leaves no tokens for completions: max_length is {longest}"
        yield "max_prompt_length", message, "lower it"
    ranks = config.nproc or 1
    together = config.batch_size * config.gradient_accumulation_steps * ranks
    given_otherwise = {"generation_batch_size", "steps_per_generation"} & {*config.trainer_args}
    in_groups = config.trainer.in_groups and not given_otherwise
    if in_groups and together % (config.num_generations or 1):
        message = (
            f"({config.num_generations}) does not divide batch_size x "
            f"gradient_accumulation_steps{' x nproc' * (ranks > 1)} ({together})"
        )
        hint = "set num_generations to a divisor, or change batch_size"
        yield "num_generations", message, hint
    yield from config.trainer.refuses(config)
    yield from speed_conflicts(config)
    if config.device == "cpu" and config.dtype == "float16":
        yield "dtype", "float16 needs a GPU", "use bfloat16 or float32"


def _of_import(config: CanaryConfig) -> Iterator[Refusal]:
    """Yield settings that need the canary inside the training, where it only reads its output."""
    for key, plain in (
        ("max_steps", None),
        ("threads", None),
        ("stop_on", None),
        ("look_steps", 0),
        ("exact", False),
        ("repeats", 1),
    ):
        if getattr(config, key) != plain:
            hint = "remove it; the command decides" if plain is None else f"set it to {plain}"
            yield key, "does not work with `import`: the command runs once, unwatched", hint
    if config.profiler.enabled:
        yield "profiler.enabled", "does not work with `import`", "remove it"


def _of_sources(config: CanaryConfig) -> Iterator[Refusal]:
    """Yield a revision of something local, and a split that embedded data lacks."""
    for what, name in (("model", config.model_name), ("dataset", config.dataset_name)):
        local = name.startswith(("embedded/", ".", "/", "~"))
        if getattr(config, f"{what}_revision") is not None and local:
            hint = "remove it; only the hub has revisions"
            yield f"{what}_revision", f"has no effect on {name}", hint
    if config.dataset_name.startswith("embedded/") and config.dataset_split != "train":
        message = f"{config.dataset_split!r} is not in {config.dataset_name}"
        yield "dataset_split", message, "its only split is train"


def _of_steps(config: CanaryConfig) -> Iterator[Refusal]:
    """Yield spans of steps that overlap, or that end after the training."""
    steps, warmup = config.max_steps, config.metrics_warmup_steps or 0
    looked = look_steps(config.look_steps, steps)
    if steps is not None and not config.exact and warmup and looked + warmup >= steps:
        message = (
            f"({warmup}) leaves no step to time: max_steps is {steps}, and {looked} are looked at"
        )
        fits = f"set it below {steps - looked}" if steps > looked + 1 else "raise max_steps"
        yield "metrics_warmup_steps", message, fits
    if steps is not None and config.warmup_steps > steps:
        yield "warmup_steps", f"is above max_steps ({steps})", "lower it"
    if not config.profiler.enabled:
        return
    start, count = config.profiler.start_step, config.profiler.num_steps
    if start <= looked:
        message = f"({start}) is in the look, the first {looked} steps"
        yield "profiler.start_step", message, f"set it above {looked}, or lower look_steps"
    if steps is not None and start + count - 1 > steps:
        message = f"ends at step {start + count - 1}, after max_steps ({steps})"
        yield "profiler.num_steps", message, "lower profiler.start_step or profiler.num_steps"


SAID_TWICE: dict[str, tuple[str, ...]] = {
    "kv_cache": ("generation_kwargs.use_cache",),
    "decode": ("cache_implementation", "generation_kwargs.cache_implementation"),
    "lengths": (
        "pad_to_multiple_of",
        "padding_free",
        "packing",
        "group_by_length",
        "train_sampling_strategy",
    ),
    "optimizer": ("optim", "optim_args"),
    "prefetch": ("dataloader_prefetch_factor", "dataloader_persistent_workers"),
    "pin_memory": ("dataloader_pin_memory",),
    "compile": ("torch_compile",),
    "liger": ("use_liger_kernel",),
}
"""Switch -> keys of `trainer_args` that set the same thing."""


def speed_conflicts(config: CanaryConfig) -> Iterator[Refusal]:
    """Yield the switches that cannot be used."""
    speed = config.speed
    for switch, names in SAID_TWICE.items():
        for name in names:
            if getattr(speed, switch) is not None and given(config.trainer_args, name):
                message = f"and trainer_args.{name} set the same thing"
                yield f"speed.{switch}", message, "keep one of the two"
    if speed.prefetch is not None and config.num_workers == 0:
        yield "speed.prefetch", "needs data workers", "set num_workers to 1 or more"
    if speed.kv_cache is False and speed.decode is not None:
        yield "speed.decode", "needs a KV cache, but speed.kv_cache is false", "remove one"
    for switch in ("pin_memory", "liger"):
        if getattr(speed, switch) and config.device == "cpu":
            yield f"speed.{switch}", "needs a GPU, but device is cpu", "remove one of the two"
    if speed.lengths == "bucketed" and config.bound_to_micro_batch:
        learns = f"what {config.training_type} learns: {config.bound_to_micro_batch}"
        yield "speed.lengths", f"bucketed would change {learns}", "choose longest or fixed"
    if speed.lengths == "fixed" and config.data_collator is not None:
        yield "speed.lengths", "fixed conflicts with data_collator", "remove one of the two"
    of_generate = {
        "fixed_length": config.fixed_length or None,
        "speed.kv_cache": speed.kv_cache,
        "speed.decode": speed.decode,
    }
    for key, value in of_generate.items():
        if value is not None and config.trainer_args.get("use_vllm"):
            yield key, "is for the model's generate, not for vLLM", "remove one of the two"
    if config.fixed_length and given(config.trainer_args, "generation_kwargs.min_new_tokens"):
        message = "and trainer_args.generation_kwargs.min_new_tokens set the same thing"
        yield "fixed_length", message, "keep one of the two"


def require_liger_installed() -> None:
    """Raise ConfigError if liger-kernel is not installed. Imports nothing."""
    if importlib.util.find_spec("liger_kernel") is None:
        raise ConfigError(
            "speed.liger needs liger-kernel, which is not installed",
            'pip install "rlhf-canary[liger]", or remove speed.liger',
            key="speed.liger",
        )


def given(arguments: dict[str, Any], name: str) -> bool:
    """Return whether nested arguments contain a dotted name."""
    place: Any = arguments
    for part in name.split("."):
        if not isinstance(place, dict) or part not in place:
            return False
        place = place[part]
    return True
