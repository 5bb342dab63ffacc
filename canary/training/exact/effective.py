"""Find the settings that a training really has when it begins, and the user's code that it calls.

Code may have changed what the config asks for. These facts are not a stage of the comparison: two
versions of a package may differ in them and train the same. They are evidence for a diagnosis, once
another signal has shown that the sides differ.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import sys
import sysconfig
import threading
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from canary.config.setting_names import may_be_secret
from canary.record.exact import OwnCode
from canary.training.exact.trainer_settings import arguments_of, plain

LIBRARIES = (
    "accelerate",
    "bitsandbytes",
    "canary",
    "datasets",
    "peft",
    "torch",
    "transformers",
    "trl",
)
"""Packages whose code is identified by their version."""
LONGEST_TEXT = 80
COUNTERS = ("is_in_train", "_step", "total_flos", "current_flos")
"""Attributes of a trainer that only show its progress."""

PPO_PARTS = ("sampling", "switches", "kl_coefficient")
"""Attributes of the canary's PPO trainer that hold settings."""


def effective_settings(trainer: Any) -> dict[str, object]:
    """Return the current scalar settings by dotted name: `args.*`, `trainer.*`, `optimizer.*`,
    `generation.*`, `model.*`, `peft.*`, `collator.*`, `torch.*`."""
    model = getattr(trainer, "model", None)
    config: Any = getattr(model, "config", None)
    found: dict[str, object] = {}
    arguments = getattr(trainer, "args", None)
    if arguments is not None and hasattr(arguments, "__dataclass_fields__"):
        found.update(_scalars("args", arguments_of(arguments)))
    found.update(_scalars("trainer", _attributes(trainer)))
    found.update(_scalars("collator", _attributes(getattr(trainer, "data_collator", None))))
    for part in PPO_PARTS:
        found.update(_scalars(part, _attributes(getattr(trainer, part, None))))
    found.update(_optimizers(trainer))
    for holder in (model, trainer):
        generation: Any = getattr(holder, "generation_config", None)
        if hasattr(generation, "to_diff_dict"):
            found.update(_scalars("generation", generation.to_diff_dict()))
    if hasattr(config, "to_diff_dict"):
        found.update(_scalars("model", config.to_diff_dict()))
    for name, adapter in (getattr(model, "peft_config", None) or {}).items():
        found.update(_scalars(f"peft.{name}", adapter.to_dict()))
    if isinstance(model, torch.nn.Module):
        found.update(_modules(model))
    found.update(_torch_settings())
    found.update(_python_settings())
    return found


def _attributes(owner: Any) -> dict[str, object]:
    values = getattr(owner, "__dict__", {})
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("_") and name not in COUNTERS
    }


def _scalars(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield numbers, flags, short texts and lists of them, but no paths and no secrets."""
    for name, value in values.items():
        if may_be_secret(name):
            continue
        simple = plain(value) if isinstance(value, list | tuple | set | frozenset) else value
        if isinstance(value, set | frozenset):
            simple = sorted(map(str, value))
        members = simple if isinstance(simple, list) else [simple]
        if len(members) <= 16 and all(_is_scalar(member) for member in members):
            yield f"{prefix}.{name}", simple


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT and os.sep not in value
    return value is None or isinstance(value, bool | int | float)


def _optimizers(trainer: Any) -> dict[str, object]:
    optimizers = getattr(trainer, "optimizers", None) or (getattr(trainer, "optimizer", None),)
    found: dict[str, object] = {}
    for place, wrapped in enumerate(o for o in optimizers if o is not None):
        optimizer = getattr(wrapped, "optimizer", wrapped)
        prefix = f"optimizer{place or ''}"
        groups = getattr(optimizer, "param_groups", [])
        found[f"{prefix}.class"] = type(optimizer).__name__
        found[f"{prefix}.groups"] = len(groups)
        for index, group in enumerate(groups):
            known = {k: v for k, v in group.items() if k not in ("params", "lr")}
            found.update(_scalars(f"{prefix}.{index}", known))
            found[f"{prefix}.{index}.tensors"] = len(group["params"])
    scheduler = getattr(trainer, "lr_scheduler", None)
    if scheduler is not None:
        inner = getattr(scheduler, "scheduler", scheduler)
        found["scheduler.class"] = type(inner).__name__
    return found


def _modules(model: torch.nn.Module) -> dict[str, object]:
    """Return the settings of modules that change what they compute."""
    dropouts = {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
    checkpointing = any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    scales = {
        float(scale)
        for module in model.modules()
        # In attention `scaling` is a number; in LoRA layers it is a dict, one value per adapter.
        if isinstance(scaling := getattr(module, "scaling", None), dict)
        for scale in scaling.values()
    }
    return {
        **({"peft.scaling": sorted(scales)} if scales else {}),
        "modules.dropout": sorted(dropouts - {0.0}),
        "modules.gradient_checkpointing": checkpointing,
    }


def _torch_settings() -> dict[str, object]:
    return {
        "torch.default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "torch.matmul_precision": torch.get_float32_matmul_precision(),
        "torch.anomaly_mode": torch.is_anomaly_enabled(),
        "torch.grad_enabled": torch.is_grad_enabled(),
        "torch.cudnn_benchmark": torch.backends.cudnn.benchmark,
        "torch.flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "torch.mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
    }


def _python_settings() -> dict[str, object]:
    """Return the settings of the interpreter that slow everything down."""
    return {
        "python.tracemalloc": tracemalloc.is_tracing(),
        "python.tracing": sys.gettrace() is not None,
        "python.profiling": sys.getprofile() is not None,
        "python.gc": gc.isenabled(),
        "python.gc_threshold": list(gc.get_threshold()),
        "python.switch_interval": sys.getswitchinterval(),
        "python.dev_mode": sys.flags.dev_mode,
        "python.threads": threading.active_count(),
    }


def called_code(trainer: Any) -> dict[str, OwnCode]:
    """Return the user's functions that this training calls, by their role in it. The hash is of the
    compiled code, so comments and line numbers do not count. Functions of the training packages are
    left out: their versions identify them."""
    found: dict[str, OwnCode] = {}
    for slot, function in _slots(trainer):
        fact = _fact(function)
        if fact is not None:
            # An attribute of the instance comes before that of its class.
            found.setdefault(slot, fact)
    return found


NAMED_SLOTS = ("data_collator", "reward_funcs")
"""Attributes of a trainer that have separate slots below."""


def _slots(trainer: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(trainer, "loop_functions", {}).items()
    for name, value in sorted(getattr(trainer, "__dict__", {}).items()):
        if inspect.isroutine(value) and name not in NAMED_SLOTS:
            yield f"trainer.{name}", value
    kinds: Iterable[type] = [k for k in type(trainer).__mro__ if k is not object]
    for kind in kinds:
        yield from _methods("trainer", kind)
    collator = unwrapped(getattr(trainer, "data_collator", None))
    if collator is not None:
        yield "data_collator", collator
        yield from _methods("data_collator", type(collator))
    scorer = getattr(trainer, "scorer", None)
    for name, value in sorted(getattr(scorer, "__dict__", {}).items()):
        if inspect.isroutine(value):
            yield f"scorer.{name}", value
    rewards = getattr(trainer, "reward_funcs", None) or getattr(scorer, "functions", None)
    for place, reward in enumerate(rewards or ()):
        yield f"reward_funcs[{place}]", reward
        yield from _methods(f"reward_funcs[{place}]", type(unwrapped(reward)))
    for callback in getattr(getattr(trainer, "callback_handler", None), "callbacks", ()):
        yield from _methods(f"callback {type(callback).__name__}", type(callback))
    model = getattr(trainer, "model", None)
    if isinstance(model, torch.nn.Module):
        seen: set[type] = set()
        for module in model.modules():
            forward = vars(module).get("forward")
            if forward is not None:
                yield f"{type(module).__name__}.forward", forward
            if type(module) not in seen:
                seen.add(type(module))
                yield from _methods(type(module).__name__, type(module))
    yield from _patched(_modules_of(kinds))


def _modules_of(kinds: Iterable[type]) -> list[ModuleType]:
    """Return the modules of the classes, plus the whole package of a canary trainer."""
    names = {kind.__module__ for kind in kinds}
    packages = tuple(
        f"{name.rpartition('.')[0]}."
        for name in names
        if name.startswith("canary.training.trainers.")
    )
    names |= {name for name in sys.modules if packages and name.startswith(packages)}
    found = (sys.modules.get(name) for name in sorted(names))
    return [module for module in found if module is not None]


def _methods(slot: str, kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in sorted(vars(kind).items()):
        plain_function = getattr(value, "__func__", value)
        if inspect.isfunction(plain_function):
            yield f"{slot}.{name}", plain_function


def _patched(modules: Iterable[ModuleType]) -> Iterator[tuple[str, Any]]:
    """Yield functions in the modules of training packages, where a user may have replaced them."""
    for module in modules:
        if _root(module.__name__) not in LIBRARIES:
            continue
        for name, value in sorted(vars(module).items()):
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def _root(name: str | None) -> str:
    return (name or "").partition(".")[0]


def unwrapped(called: Any) -> Any:
    """Return the function inside partials, bound methods and the canary's wrappers of plugins."""
    inner = called
    while not hasattr(inner, "__code__") or hasattr(inner, "function"):
        values = (getattr(inner, name, None) for name in ("func", "__func__", "function"))
        behind = next((value for value in values if callable(value)), None)
        if behind is None:
            return inner
        inner = behind
    return inner


def _fact(function: Any) -> OwnCode | None:
    """Return the origin of a user's function, or None for a function of a package."""
    inner = unwrapped(function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    file = Path(code.co_filename)
    if _root(getattr(inner, "__module__", "")) in LIBRARIES or _installed(file):
        return None
    digest = hashlib.sha256()
    _feed(digest, code)
    return {
        "name": f"{inner.__module__}.{inner.__qualname__}",
        "file": _shown(file),
        "line": code.co_firstlineno,
        "sha256": digest.hexdigest()[:16],
    }


_PLACES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def _installed(file: Path) -> bool:
    return str(file).startswith(("<", *_PLACES)) or "site-packages" in file.parts


def is_users_file(name: str) -> bool:
    """Return whether the user wrote this file of code: it is no installed package, and not ours."""
    file = Path(name)
    return not _installed(file) and PACKAGE not in file.parents


PACKAGE = Path(__file__).resolve().parents[2]


def _shown(file: Path) -> str:
    """Return the path relative to the working directory if it is inside, otherwise the name."""
    try:
        return str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return file.name


def _feed(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())
