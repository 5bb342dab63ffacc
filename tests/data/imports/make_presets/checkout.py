"""Single modules of frameworks that no registry has, read from a clone of their repository."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


def clone(framework: str) -> Path:
    """The clone of `framework`, below the folder that CLONES names, at the README's commit."""
    return Path(os.environ["CLONES"]) / framework


def module(framework: str, path: str, name: str) -> ModuleType:
    """The module at `path` of the clone, under the module name `name`, without its package."""
    spec = importlib.util.spec_from_file_location(name, clone(framework) / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded
