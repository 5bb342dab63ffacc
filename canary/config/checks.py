"""Config checks that need more than one key: unused keys, conflicts, needs of speed switches."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from canary.config.redaction import HIDDEN, missing_secret
from canary.config.schema import CanaryConfig
from canary.config.source import Origins
from canary.config.spans import look_steps
from canary.config.trainers import EXEC_KEYS, OWN_KEYS, users_of
from canary.errors import ConfigError

Refuse = Callable[[str, str, str], None]
"""Raises ConfigError for a key, with a message and a remedy."""


def refusing(origins: Origins, source: str) -> Refuse:
    """Return what refuses a key in the place where it was set."""

    def refuse(key: str, message: str, hint: str) -> None:
        place = origins.get(key, source)
        raise ConfigError(f"{key} in {place} {message}", hint, file=source, key=key)

    return refuse


def check_used(values: Mapping[str, Any], config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse a given key that the chosen trainer would ignore.

    Raises:
        ConfigError: names the key, the trainer, and the trainers that use it.
    """
    given = {key for key, value in values.items() if value not in (None, [], ())}
    given -= set() if config.fixed_length else {"fixed_length"}
    given |= {f"speed.{key}" for key, value in config.speed if value is not None}
    trainer = config.training_type
    _check_command(given, config, refuse)
    for key in sorted(given):
        users = users_of(key)
        if users and trainer not in users:
            hint = f"remove it; {_listed(users)} use{'s' if len(users) == 1 else ''} it"
            refuse(key, f"is not used by training_type {trainer}", hint)
    for key in ("lora_r", "lora_alpha", "lora_dropout"):
        if key in given and not config.use_peft:
            hint = "set use_peft: true, or remove it"
            refuse(key, "has no effect without adapters", hint)
    for key, value in config.trainer_args.items():
        if key in OWN_KEYS:
            same = OWN_KEYS[key]
            used = trainer in (users_of(same) or (trainer,))
            hint = f"set {same} instead" if used else f"remove it; {trainer} does not use {same}"
            refuse(f"trainer_args.{key}", f"is set by the config key {same}", hint)
        if not _is_plain(value):
            message = f"is a {type(value).__name__}, which JSON lacks"
            refuse(f"trainer_args.{key}", message, "quote it, or write a list")


def _listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _check_command(given: set[str], config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse keys of the built-in trainers beside a command, and a command that cannot run."""
    if config.training_type != "exec":
        unused = f"is not used by training_type {config.training_type}"
        if config.imports is not None:
            refuse("import", unused, "give the command that trains, or remove it")
        if config.command:
            refuse("command", unused, "set training_type: exec, or remove one of the two")
        return
    if not config.command:
        hint = "write command: [python, train.py], or use canary exec -- python train.py"
        refuse("training_type", "is exec, which needs a command", hint)
    missing = missing_secret(config.command)
    if missing is not None:
        message = f"has {HIDDEN} as the value of {missing}: run folders hide secrets"
        hint = "write the real value, or let the command read it from the environment"
        refuse("command", message, hint)
    for key in sorted(given - set(EXEC_KEYS)):
        refuse(key, "is not used by training_type exec", "remove it; set it in the command")


def _is_plain(value: Any) -> bool:
    """Return whether JSON can hold the value; YAML also has dates, sets and bytes."""
    if isinstance(value, list | dict):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, str | int | float)


def _check_sources(config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse a revision of something local, and a split that embedded data lacks."""
    for key, name in (
        ("model_revision", config.model_name),
        ("dataset_revision", config.dataset_name),
    ):
        local = name.startswith(("embedded/", ".", "/", "~"))
        if getattr(config, key) is not None and local:
            refuse(key, f"has no effect on {name}", "remove it; only the hub has revisions")
    if config.dataset_name.startswith("embedded/") and config.dataset_split != "train":
        message = f"{config.dataset_split!r} is not in {config.dataset_name}"
        refuse("dataset_split", message, "its only split is train")


def _check_import(config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse settings that need the canary inside the training, where it only reads its output."""
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
            refuse(key, "does not work with `import`: the command runs once, unwatched", hint)
    if config.profiler.enabled:
        refuse("profiler.enabled", "does not work with `import`", "remove it")


def _check_launches(config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse keys that need a whole training with `exact`."""
    if config.exact and not config.look_steps:
        refuse("exact", "is true and look_steps is 0: nothing would be recorded", "remove one")
    if config.exact and config.profiler.enabled:
        refuse("profiler.enabled", "needs timed steps, but exact is true", "remove one of the two")


def check_together(config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse values that exclude each other.

    Raises:
        ConfigError: names the keys and the remedy.
    """
    if config.imports is not None:
        _check_import(config, refuse)
    _check_launches(config, refuse)
    if config.load_in_4bit and config.load_in_8bit:
        refuse("load_in_4bit", "and load_in_8bit exclude each other", "keep one of them")
    for key in ("load_in_4bit", "load_in_8bit"):
        if getattr(config, key) and not config.use_peft:
            refuse(key, "needs an adapter", "set use_peft: true")
    _check_sources(config, refuse)
    _check_steps(config, refuse)
    prompt, longest = config.max_prompt_length, config.max_length
    if prompt is not None and longest is not None and prompt >= longest:
        message = f"({prompt}) leaves no tokens for completions: max_length is {longest}"
        refuse("max_prompt_length", message, "lower it")
    if config.trainer.in_groups and config.num_generations is not None:
        together = config.batch_size * config.gradient_accumulation_steps
        if together % config.num_generations:
            refuse(
                "num_generations",
                f"({config.num_generations}) does not divide batch_size x "
                f"gradient_accumulation_steps ({together})",
                "set num_generations to a divisor, or change batch_size",
            )
    refused = config.trainer.refuses(config)
    if refused is not None:
        refuse(*refused)
    check_speed(config, refuse)
    if config.device == "cpu" and config.dtype == "float16":
        refuse("dtype", "float16 needs a GPU", "use bfloat16 or float32")


def _check_steps(config: CanaryConfig, refuse: Refuse) -> None:
    """Refuse spans of steps that overlap, or that end after the training."""
    steps, warmup = config.max_steps, config.metrics_warmup_steps or 0
    looked = look_steps(config.look_steps, steps)
    if steps is not None and not config.exact and warmup and looked + warmup >= steps:
        refuse(
            "metrics_warmup_steps",
            f"({warmup}) leaves no step to time: max_steps is {steps}, and {looked} are looked at",
            f"set it below {steps - looked}",
        )
    if steps is not None and config.warmup_steps > steps:
        refuse("warmup_steps", f"is above max_steps ({steps})", "lower it")
    if not config.profiler.enabled:
        return
    start, count = config.profiler.start_step, config.profiler.num_steps
    if start <= looked:
        message = f"({start}) is in the look, the first {looked} steps"
        refuse("profiler.start_step", message, f"set it above {looked}, or lower look_steps")
    if steps is not None and start + count - 1 > steps:
        message = f"ends at step {start + count - 1}, after max_steps ({steps})"
        hint = "lower profiler.start_step or profiler.num_steps"
        refuse("profiler.num_steps", message, hint)


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


def check_speed(config: CanaryConfig, refuse: Refuse) -> None:
    """Call `refuse(key, message, hint)` for each switch that cannot be used."""
    speed = config.speed
    for switch, names in SAID_TWICE.items():
        for name in names:
            if getattr(speed, switch) is not None and given(config.trainer_args, name):
                message = f"and trainer_args.{name} set the same thing"
                refuse(f"speed.{switch}", message, "keep one of the two")
    if speed.prefetch is not None and config.num_workers == 0:
        refuse("speed.prefetch", "needs data workers", "set num_workers to 1 or more")
    if speed.kv_cache is False and speed.decode is not None:
        refuse("speed.decode", "needs a KV cache, but speed.kv_cache is false", "remove one")
    for switch in ("pin_memory", "liger"):
        if getattr(speed, switch) and config.device == "cpu":
            refuse(f"speed.{switch}", "needs a GPU, but device is cpu", "remove one of the two")
    _check_lengths(config, refuse)
    of_generate = {
        "fixed_length": config.fixed_length or None,
        "speed.kv_cache": speed.kv_cache,
        "speed.decode": speed.decode,
    }
    for key, value in of_generate.items():
        if value is not None and config.trainer_args.get("use_vllm"):
            refuse(key, "is for the model's generate, not for vLLM", "remove one of the two")
    if config.fixed_length and given(config.trainer_args, "generation_kwargs.min_new_tokens"):
        message = "and trainer_args.generation_kwargs.min_new_tokens set the same thing"
        refuse("fixed_length", message, "keep one of the two")


def require_liger_installed() -> None:
    """Raise ConfigError if liger-kernel is not installed. Imports nothing."""
    if importlib.util.find_spec("liger_kernel") is None:
        raise ConfigError(
            "speed.liger needs liger-kernel, which is not installed",
            'pip install "rlhf-canary[liger]", or remove speed.liger',
            key="speed.liger",
        )


def bound_to_its_micro_batch(config: CanaryConfig) -> str:
    """Return why a row's loss depends on the rows of its micro-batch; empty if it does not."""
    return config.trainer.bound_to_micro_batch(config.trainer_args)


def _check_lengths(config: CanaryConfig, refuse: Refuse) -> None:
    lengths = config.speed.lengths
    reason = bound_to_its_micro_batch(config)
    if lengths == "bucketed" and reason:
        message = f"bucketed would change what {config.training_type} learns: {reason}"
        refuse("speed.lengths", message, "choose longest or fixed")
    if lengths == "fixed" and config.data_collator is not None:
        refuse("speed.lengths", "fixed conflicts with data_collator", "remove one of the two")


def given(arguments: dict[str, Any], name: str) -> bool:
    """Return whether nested arguments contain a dotted name."""
    place: Any = arguments
    for part in name.split("."):
        if not isinstance(place, dict) or part not in place:
            return False
        place = place[part]
    return True
