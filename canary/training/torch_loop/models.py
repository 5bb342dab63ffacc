"""Find the modules that hold an optimizer's parameters."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from canary.training.exact.parameters import parameters_of

WRAPPED_AS = ("module", "_orig_mod", "_fsdp_wrapped_module")
"""Attributes under which DistributedDataParallel, torch.compile and others keep the module."""


def size_of(optimizer: torch.optim.Optimizer) -> int:
    """Return how many numbers the optimizer holds. In a GAN some ask for no gradient at times."""
    return sum(value.numel() for value in parameters_of(optimizer))


def outermost_modules(parameters: Sequence[torch.Tensor]) -> list[nn.Module]:
    """Return the outermost modules that hold these parameters, in the order of the parameters. It
    looks at every object of the process: some ten milliseconds."""
    place = {id(value): number for number, value in reversed([*enumerate(parameters)])}
    first: dict[int, int] = {}
    modules: dict[int, nn.Module] = {}
    parents: dict[int, list[int]] = defaultdict(list)
    for item in gc.get_objects():
        if not issubclass(type(item), nn.Module) or "_parameters" not in vars(item):
            continue
        modules[id(item)] = item
        for child in item._modules.values():
            parents[id(child)].append(id(item))
        held = [place[id(p)] for p in item._parameters.values() if id(p) in place]
        if held:
            first[id(item)] = min(held)
    found: dict[int, int] = {}
    for holder, number in first.items():
        for top in _tops(holder, parents):
            found[top] = min(number, found.get(top, number))
    return [modules[top] for top in sorted(found, key=lambda top: found[top]) if top in modules]


def _tops(module: int, parents: dict[int, list[int]]) -> set[int]:
    """Return the ancestors that have no parent."""
    seen, rest, tops = {module}, [module], set()
    while rest:
        above = parents.get(one := rest.pop())
        if not above:
            tops.add(one)
        for parent in above or ():
            if parent not in seen:
                seen.add(parent)
                rest.append(parent)
    return tops


def without_wrappers(module: nn.Module) -> nn.Module:
    """Return the user's module inside wrappers, so that names of parameters stay the same."""
    while True:
        inner = [vars(module)["_modules"].get(name) for name in WRAPPED_AS]
        held = next((one for one in inner if one is not None), None)
        others = any(value is not None for value in module._parameters.values())
        if held is None or len(module._modules) > 1 or others:
            return module
        module = held


class Several(nn.Module):
    """Modules that one loop trains, without a module around them."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        for number, part in enumerate(parts):
            self._modules[f"{type(part).__name__}{number or ''}"] = part
        self.training = any(part.training for part in parts)


def as_one(modules: Sequence[nn.Module]) -> nn.Module | None:
    """Return one module that holds all of them, None without any."""
    if not modules:
        return None
    plain = [without_wrappers(module) for module in modules]
    return plain[0] if len(plain) == 1 else Several(plain)


def children_of(modules: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Yield the modules right below, through lists and mappings of modules."""
    for module in modules:
        for child in module.children():
            if isinstance(child, nn.ModuleList | nn.ModuleDict):
                yield from children_of([child])
            else:
                yield child


def holds(model: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer trains a parameter of this model."""
    held = {id(value) for value in model.parameters()}
    return any(id(value) in held for value in parameters_of(optimizer))
