"""Empty modules for the heavy packages that a writer's module imports and never calls."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import MagicMock


class _Empty(ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if name == "__version__":
            return "999.0.0"
        value = type(name, (), {}) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in self.packages or any(name.startswith(f"{one}.") for one in self.packages):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in(*packages: str) -> None:
    """Makes `packages`, and all below them, importable and empty."""
    sys.meta_path.insert(0, _Finder(packages))
