"""Changes planted in the training processes, through the interpreter's own start-up hook."""

from __future__ import annotations

from pathlib import Path

PLANT = '''
"""Planted in the training process through the interpreter's own start-up hook."""
import importlib.abc, importlib.machinery, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "canary.training.trainers":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        loader, original = spec.loader, spec.loader.exec_module
        def exec_module(module):
            original(module)
            build = module.build_trainer
            def planted(spec):
                prepare(spec)
                trainer = build(spec)
                plant(trainer, spec)
                return trainer
            module.build_trainer = planted
        loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())

def prepare(spec):
{before}

def plant(trainer, spec):
{body}
'''


def plant(folder: Path, body: str, before: str = "pass") -> None:
    """Puts a change into the training processes that are started with `folder` on their path.

    `body` runs once the trainer is built and sees it as `trainer`; `before` runs just before, when
    tokenizer and data are not loaded yet. Both see the launch as `spec`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    code = PLANT.replace("{before}", _indented(before)).replace("{body}", _indented(body))
    (folder / "sitecustomize.py").write_text(code)


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.strip().splitlines())
