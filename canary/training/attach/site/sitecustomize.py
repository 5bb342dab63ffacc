"""Put on PYTHONPATH by `canary exec`: attaches the canary when `transformers.trainer` is loaded.

Python runs this file at its start, in every process of the user's command. So it uses only the
standard library, costs one small file if nothing trains, and runs the user's `sitecustomize` too.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType

STARTED = time.perf_counter()
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs an import
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))  # noqa: PTH120


class Finder:
    """Loads the wanted modules as usual, then calls a function with each, once. A lookup alone
    (`importlib.util.find_spec`) does not call it."""

    def __init__(self, wanted: dict[str, Callable[[ModuleType], None]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec with a wrapped loader."""
        if name not in self._wanted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            loaded = self._wanted.pop(name, None)
            if loaded is not None:
                loaded(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def guarded(call: Callable[..., None]) -> Callable[..., None]:
    """Leave a mark if it fails, and let the user's import go on: their Python may lack anything."""

    def called(*args: object) -> None:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - another version may lack anything
            mark("broken", f"{type(error).__name__}: {error}")

    return called


def can_attach(name: str) -> bool:
    """Whether the canary is at hand here and has a job; `name` is the mark of how far it came."""
    foreign = foreign_canary()
    if foreign is not None:
        mark("foreign", foreign)
        return False
    if not os.path.exists(os.environ["_RLHF_CANARY_JOB"]):  # noqa: PTH110
        return False
    mark(name)
    # `import canary` then finds this package, but no other package installed beside it.
    load("canary", "__init__.py", [PACKAGE])
    return True


@guarded
def trainer_loaded(module: ModuleType) -> None:
    """Attach the canary to `transformers.trainer`."""
    if can_attach("hooked"):
        from canary.training.attach.watch import hook

        hook(module, STARTED)


@guarded
def torch_loaded(module: ModuleType) -> None:
    """Wait for the first optimizer of this process."""
    mark("torch")
    taps = load_alone("training/collectors/taps")
    taps.LOADS.begin(module)
    taps.Taps(optimizer_made, backwards_alone).install(module)


@guarded
def models_loaded(module: ModuleType) -> None:
    """Note embeddings that get more rows."""
    load_alone("training/collectors/taps").LOADS.transformers_loaded(module)


def backwards_alone(count: str) -> None:
    """Leave a mark: the loop changes its parameters without an optimizer."""
    mark("backward", count)


@guarded
def optimizer_made(taps: object) -> None:
    """Attach the canary to the loops of this process."""
    if can_attach("optimizer"):
        from canary.training.torch_loop.watch import begin

        begin(taps, STARTED)  # type: ignore[arg-type]


@guarded
def code_runs() -> None:
    """Note the user's code that runs from here on."""
    load_alone("training/collectors/ran").RAN.begin(os.environ.get("_RLHF_CANARY_MARKS"))


def load_alone(module_path: str) -> ModuleType:
    """Load a module of the canary by its path in the package, without the package itself. An
    `import` of it by its name then finds this one."""
    return load(f"canary.{module_path.replace('/', '.')}", f"{module_path}.py")


def load(name: str, file: str, folders: list[str] | None = None) -> ModuleType:
    """Load a file of the package as the module of this name, once. `folders`: of a package."""
    known = sys.modules.get(name)
    if known is not None:
        return known
    path = os.path.join(PACKAGE, file)  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def foreign_canary() -> str | None:
    """Return the user's package called canary, None without one."""
    loaded = sys.modules.get("canary")
    spec = loaded.__spec__ if loaded else importlib.machinery.PathFinder.find_spec("canary")
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or [str(spec.origin)])
    mine = os.path.join("training", "attach")  # noqa: PTH118
    ours = [folder for folder in folders if os.path.isdir(os.path.join(folder, mine))]  # noqa: PTH112, PTH118
    return None if ours else folders[0]


def mark(name: str, text: str = "") -> None:
    """Leave a file that says how far this process came."""
    folder = os.environ.get("_RLHF_CANARY_MARKS")
    if folder:
        try:
            with open(os.path.join(folder, f"{name}.{os.getpid()}"), "w") as stream:  # noqa: PTH118, PTH123
                stream.write(text)
        except OSError:
            return


def begin() -> None:
    """Remove this folder from the path, install the hooks, and run the user's `sitecustomize`."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100
    if os.environ.get("_RLHF_CANARY_JOB"):
        mark("seen", sys.executable or "")
        wanted: dict[str, Callable[[ModuleType], None]] = {
            "transformers.trainer": trainer_loaded,
            "torch": torch_loaded,
            "transformers.modeling_utils": models_loaded,
        }
        sys.meta_path.insert(0, Finder(wanted))
        code_runs()
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


begin()
