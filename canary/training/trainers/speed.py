"""Apply the switches of the config's `speed` section to any trainer.

A switch is an argument of the trainer's config class (`arguments`) or of the model's `generate`
(`generation`). Otherwise it changes the built trainer (`apply`). Null changes nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from canary.config.checks import require_liger_installed
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError
from canary.training.collectors.aside import Wrapping

ADAMW: Mapping[str, dict[str, bool]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""Arguments of torch.optim.AdamW."""

CXX = ("g++", "clang++", "c++")
CC = ("gcc", "clang", "cc")
"""Compilers for torch.compile: it needs C++ on the CPU, and C for Triton's launchers on a GPU."""


def arguments(config: CanaryConfig, cuda: bool) -> dict[str, Any]:
    """Return arguments of the trainer's config class. `cuda`: whether a GPU trains.

    Raises ConfigError if this machine or its packages do not support a switch.
    """
    speed = config.speed
    found: dict[str, Any] = {}
    if speed.optimizer is not None:
        found["optim"] = "adamw_torch_fused" if speed.optimizer == "fused" else "adamw_torch"
    if speed.prefetch is not None:
        found["dataloader_prefetch_factor"] = speed.prefetch
        found["dataloader_persistent_workers"] = True
    if speed.pin_memory is not None:
        if speed.pin_memory and not cuda:
            raise _needs_gpu("speed.pin_memory")
        found["dataloader_pin_memory"] = speed.pin_memory
    if speed.compile is not None:
        if speed.compile:
            _require_compiler("speed.compile", cuda)
        found["torch_compile"] = speed.compile
    if speed.liger is not None:
        if speed.liger:
            require_liger_installed()
            if not cuda:
                raise _needs_gpu("speed.liger")
        found["use_liger_kernel"] = speed.liger
    if speed.lengths == "fixed" and config.max_length is not None:
        # Rows are never longer than max_length, so all are padded to exactly that.
        found["pad_to_multiple_of"] = config.max_length
    return found


def cache(config: CanaryConfig) -> dict[str, Any]:
    """Return arguments of `generate` for the config's cache."""
    speed = config.speed
    found: dict[str, Any] = {}
    if speed.kv_cache is not None:
        found["use_cache"] = speed.kv_cache
    if speed.decode in ("static", "compiled"):
        found["cache_implementation"] = "static"
    return found


def generation(config: CanaryConfig) -> dict[str, Any]:
    """Return arguments of `generate` for the config's cache and fixed completion length."""
    shortest = {"min_new_tokens": config.max_new_tokens} if config.fixed_length else {}
    return cache(config) | shortest


def compilation(config: CanaryConfig, cuda: bool) -> dict[str, Any]:
    """Return arguments of `generate` that switch compiled decoding on or off.

    Raises ConfigError if the compiler is missing.
    """
    decode = config.speed.decode
    if decode is None:
        return {}
    if decode != "compiled":
        return {"disable_compile": True}  # by default transformers compiles with a static cache
    _require_compiler("speed.decode", cuda)
    from transformers import CompileConfig

    settings: Any = CompileConfig() if cuda else CompileConfig(mode="default")
    settings._compile_all_devices = True  # on a CPU too
    return {"disable_compile": False, "compile_config": settings}


def apply(trainer: Any, config: CanaryConfig) -> None:
    """Apply the switches that no argument reaches, on this trainer instance only."""
    speed = config.speed
    if speed.optimizer is not None:
        _choose_adamw(trainer, ADAMW[speed.optimizer])
    if speed.lengths == "bucketed" and not config.trainer.own_loop:
        bucket_rows(trainer)
    if speed.liger and config.trainer.own_loop:
        _fuse_kernels(trainer)
    if speed.decode in ("static", "compiled"):
        keep_one_dtype(getattr(trainer.model, "policy", trainer.model))
    cuda = trainer.args.device.type == "cuda"
    if hasattr(trainer, "_generate_and_score_completions") and not trainer.args.use_vllm:
        for name, value in compilation(config, cuda).items():
            setattr(trainer.generation_config, name, value)
            trainer.generation_kwargs[name] = value


def _choose_adamw(trainer: Any, flags: Mapping[str, bool]) -> None:
    def chosen(original: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        family, settings = original(*args, **kwargs)
        return family, settings | flags

    Wrapping().wrap(trainer, "get_optimizer_cls_and_kwargs", chosen)


def _fuse_kernels(trainer: Any) -> None:
    """Put Liger's kernels into policy and reference. transformers does that only when its training
    loop starts, and this trainer has another loop."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    for model in (trainer.model.policy, trainer.ref_model):
        if model is not None:
            inner = model.get_base_model() if hasattr(model, "get_base_model") else model
            _apply_liger_kernel_to_instance(model=inner)


def _needs_gpu(key: str) -> ConfigError:
    return ConfigError(
        f"{key} needs a GPU, but the training runs on the CPU", f"remove {key}", key=key
    )


def _require_compiler(key: str, cuda: bool) -> None:
    names = CC if cuda else CXX
    chosen = os.environ.get("CC" if cuda else "CXX")
    if not any(shutil.which(name) for name in ((chosen,) if chosen else names)):
        raise ConfigError(
            f"{key} needs a {'C' if cuda else 'C++'} compiler, but this machine has none "
            f"({chosen or ', '.join(names)})",
            f"install {names[0]}, or remove {key}",
            key=key,
        )
    if cuda and importlib.util.find_spec("triton") is None:
        raise ConfigError(f"{key} needs triton", "install a GPU build of torch", key=key)


class Bucketed(Sampler[int]):
    """Keeps another sampler's order, but sorts every `together` rows from long to short."""

    def __init__(self, order: Any, lengths: Sequence[int], together: int) -> None:
        self.order = order
        self._lengths = lengths
        self._together = together

    def __iter__(self) -> Iterator[int]:
        order = iter(self.order)
        while rows := list(islice(order, self._together)):
            yield from sorted(rows, key=self._lengths.__getitem__, reverse=True)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the inner sampler."""
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)


def bucket_rows(trainer: Any) -> None:
    """Make this trainer instance sort the rows of each optimizer step by length, so that
    micro-batches have less padding. This changes only rounding if the loss is a mean over rows, or
    over all tokens of the step.

    Raises ConfigError if rows have no token ids, or the loader does not draw rows one by one.
    """
    lengths = row_lengths(trainer.train_dataset)
    args = trainer.args
    together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size

    def sorted_rows(original: Any) -> Any:
        # After accelerate has put its sampler in, so that steps get the same rows as without this.
        loader = original()
        batches = _innermost(loader.batch_sampler)
        batches.sampler = Bucketed(batches.sampler, lengths, together)
        return loader

    Wrapping().wrap(trainer, "get_train_dataloader", sorted_rows)


def _innermost(batches: Any) -> BatchSampler:
    """Return the sampler of whole batches, below those that split batches among ranks."""
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    if not hasattr(batches, "sampler"):
        raise ConfigError(
            "speed.lengths bucketed needs a data loader that draws rows one by one",
            "choose longest",
            key="speed.lengths",
        )
    return batches


def row_lengths(rows: Any) -> list[int]:
    """Return the tokens of each row: its prompt plus its longest answer.

    Raises ConfigError if the rows are not tokenized or are a stream.
    """
    names = [name for name in getattr(rows, "column_names", None) or () if "ids" in name]
    if not names or not hasattr(rows, "__len__"):
        raise ConfigError(
            "speed.lengths bucketed needs tokenized rows, not a stream",
            "choose longest",
            key="speed.lengths",
        )
    return [row_length({name: row[name] for name in names}) for row in rows.select_columns(names)]


def row_length(row: Mapping[str, Sequence[int]]) -> int:
    """Return the tokens of one row; its columns are ids of the prompt and of one or two answers."""
    prompts = [len(ids) for name, ids in row.items() if name.startswith("prompt")]
    answers = [len(ids) for name, ids in row.items() if not name.startswith("prompt")]
    return sum(prompts) + max(answers, default=0)


MAKERS = ("_prepare_static_cache", "_get_cache")
"""Methods that create the cache for a model's `generate`; the second before transformers 5."""


def keep_one_dtype(model: Any) -> None:
    """Make this model's caches store keys in the dtype of the values.

    transformers allocates both in the dtype of the first keys. Under autocast, rotary embeddings
    make the keys float32, and the values keep the dtype of their projection. Attention under
    autocast computes in that dtype anyway.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    for name in MAKERS:
        Wrapping().wrap(inner, name, _around_making)


def _around_making(original: Any, *args: Any, **kwargs: Any) -> Any:
    cache = original(*args, **kwargs)
    for layer in getattr(getattr(cache, "self_attention_cache", cache), "layers", ()):
        if not hasattr(layer.update, "__wrapped__"):
            layer.update = _updating(layer.update)
    return cache


def _updating(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update(keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return original(keys.to(values.dtype), values, *args, **kwargs)

    return update
