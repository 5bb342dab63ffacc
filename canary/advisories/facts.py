"""What a record says of its training, under the keys that conditions name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canary.advisories.condition import Fact, Known
from canary.advisories.keys import (
    ADAPTER,
    ANY_TRAINER,
    ARGUMENTS,
    MODEL,
    TRAINER,
    TRAINER_NAMES,
    Scalar,
)
from canary.config.trainers import OWN_KEYS, TRAINERS
from canary.record.exact import TORCH_LOOP
from canary.record.types import RunRecord

QUANTIZED = {"torch.uint8": "4bit", "torch.int8": "8bit"}
"""How bitsandbytes stores weights."""
OWN_NAMES = {name: key for name, key in OWN_KEYS.items() if key not in ("dtype", "device")}


def known_of(record: RunRecord) -> Known:
    """Return what a record tells."""
    packages = record.env.get("packages", {})
    return Known(packages, dict(_facts(record.config, record.exact, record.env)))


def _facts(
    config: Mapping[str, Any], exact: Mapping[str, Any], env: Mapping[str, Any]
) -> Iterator[tuple[str, Fact]]:
    settings = exact.get("evidence", {}).get("settings", {})
    model = exact.get("model", {})
    trainers = _trainers(config)
    if trainers is not None:
        yield TRAINER, trainers
    yield from _arguments(config, settings)
    yield from _of_model(settings, model)
    yield from _adapters(config, settings)
    yield from _machine(config, env)
    if model.get("dtypes"):
        found = [QUANTIZED[name] for name in model["dtypes"] if name in QUANTIZED]
        yield "quantization", found or "none"
    for name in ("deepspeed", "fsdp"):
        used = settings.get(f"trainer.is_{name}_enabled")
        if used is not None:
            yield name, used


def _trainers(config: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the names of a trainer and of those that it is built upon; none for a plain loop, None
    if not known."""
    kind, path = str(config.get("training_type", "")), str(config.get("trainer", ""))
    own_class = path.rpartition(".")[2].lower().removesuffix("trainer")
    found = {name for name in (kind, own_class) if name in TRAINER_NAMES}
    built_upon = path.startswith((f"{ANY_TRAINER}.", "trl."))
    built_in = kind in TRAINERS and not TRAINERS[kind].own_loop
    if found or built_upon:
        upon = {ANY_TRAINER} if built_upon or built_in or found - {kind} else set()
        return sorted(found | upon)
    return [] if path == TORCH_LOOP else None


def _arguments(
    config: Mapping[str, Any], settings: Mapping[str, Any]
) -> Iterator[tuple[str, Fact]]:
    """Yield a trainer's arguments. One that a known training leaves out is at its default."""
    given = config.get("trainer_args") or {}
    in_training = any(name.startswith("args.") for name in settings)
    for name, default in ARGUMENTS.items():
        key = f"training.{name}"
        own = config.get(OWN_NAMES[name]) if name in OWN_NAMES else None
        if f"args.{name}" in settings:
            yield key, settings[f"args.{name}"]
        elif name in given:
            yield key, given[name]
        elif own is not None:
            yield key, own
        elif default is not None and in_training:
            yield key, default


def _of_model(settings: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    has_config = any(name.startswith("model.") for name in settings)
    for name, default in MODEL.items():
        for source, place in ((model, name), (settings, f"model.{name}")):
            if source.get(place) is not None:
                found = source[place]
                yield f"model.{name}", [*found.values()] if isinstance(found, dict) else found
                break
        else:
            if default is not None and has_config:
                yield f"model.{name}", default


def _adapters(config: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    used = config.get("use_peft")
    if used is None:
        return
    yield "adapters", used
    found: dict[str, list[Scalar]] = {}
    for key, value in settings.items():
        name = key.rpartition(".")[2]
        if name in ADAPTER and key.startswith("peft."):
            found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    for name in ADAPTER:
        if name in found or not used:
            yield f"adapter.{name}", found.get(name, [])


def _machine(config: Mapping[str, Any], env: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    device = env.get("device", {}).get("type")
    if device is not None:
        yield "device", device
    if config.get("dtype") is not None:
        yield "dtype", config["dtype"]
    if env.get("world_size") is not None:
        yield "ranks", env["world_size"]
    elif device is not None:
        # A record names the ranks only if there are several.
        yield "ranks", 1
