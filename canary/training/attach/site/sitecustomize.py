"""Put on PYTHONPATH by `canary exec`: waits for `transformers.trainer` and has the canary watch it.

Python runs this file at its start, in every process of the user's command. It needs nothing but the
standard library, costs a file's touch where nothing trains, and runs the `sitecustomize` that it
stands in front of.
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
PACKAGE = os.path.dirname(os.path.dirname(HERE))  # noqa: PTH120

BEGINNING: list[Callable[[], None]] = []
"""What to call when a training is about to begin."""


class Finder:
    """Answers for some modules: loads them as ever, then tells of it, once each. To be asked for a
    module (`importlib.util.find_spec`) is not yet to load it."""

    def __init__(self, wanted: dict[str, Callable[[ModuleType], None]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, its loader wrapped."""
        if name not in self._wanted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            told = self._wanted.pop(name, None)
            if told is not None:
                told(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def trains(module: ModuleType) -> None:
    """`transformers.trainer` is loaded."""
    for told in BEGINNING:
        told()
    foreign = foreign_canary()
    if foreign is not None:
        mark("foreign", foreign)
    elif os.path.exists(os.environ["_RLHF_CANARY_JOB"]):  # noqa: PTH110
        attach(module)


def attach(module: ModuleType) -> None:
    """Whatever goes wrong here is the canary's matter; the user's import goes on."""
    mark("hooked")
    try:
        load_canary()
        from canary.training.attach.hook import hook

        hook(module, STARTED)
    except Exception as error:  # noqa: BLE001 - a stranger's Python may lack anything
        mark("broken", f"{type(error).__name__}: {error}")


def note_files(root: int) -> dict[str, Callable[[ModuleType], None]]:
    """Notes what is changed; returns what must be told of modules that write unheard by Python."""
    noting = alone("noting")
    wanted = os.environ[noting.VARIABLE].partition(":")[0]
    if wanted == noting.NOTE and root == os.getpid():
        alone("started").keep_start(HERE)
    notes = noting.begin(alone("free"), root)
    if wanted == noting.GUARD:
        alone("programs").begin(noting.end_here, lambda: alone("command_line", "config"), HERE)
    writers = alone("writers")
    writers.hear_open(notes)
    writers.hear_nodes(notes)
    BEGINNING.append(notes.trains)
    found: dict[str, Callable[[ModuleType], None]] = writers.listeners(notes)
    return found


def noted_files(root: int) -> dict[str, Callable[[ModuleType], None]]:
    """The same, where it can: a further launch that nobody can follow is ended at once, and after a
    first one none follows."""
    try:
        return note_files(root)
    except Exception as error:  # noqa: BLE001 - a stranger's Python may lack anything
        why = f"{type(error).__name__}: {error}"
        if not os.environ["_RLHF_CANARY_FILES"].startswith("guard:"):
            mark("unnoted", why)
            return {}
        mark("guarded", f"run unfollowed ({why})\nplease report it")
        os._exit(70)


def alone(name: str, folder: str = "runner") -> ModuleType:
    """A module of the canary's that needs nothing else of it."""
    known = sys.modules.get(f"_canary_{name}")
    if known is not None:
        return known
    path = os.path.join(PACKAGE, folder, f"{name}.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(f"_canary_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"_canary_{name}"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def load_canary() -> None:
    """Makes `import canary` mean this package, and nothing else beside it importable."""
    if "canary" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "canary",
        os.path.join(PACKAGE, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[PACKAGE],
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["canary"] = module
    spec.loader.exec_module(module)


def foreign_canary() -> str | None:
    """A package of the user's own that has the canary's name; None where there is none."""
    loaded = sys.modules.get("canary")
    spec = loaded.__spec__ if loaded else importlib.machinery.PathFinder.find_spec("canary")
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or [str(spec.origin)])
    ours = [folder for folder in folders if os.path.isdir(os.path.join(folder, "attach"))]  # noqa: PTH112, PTH118
    return None if ours else folders[0]


def seen() -> int:
    """Marks this process, and each that it forks. Returns the first Python process of those that
    led to it without a shell or another program between them."""
    folder = os.environ.get("_RLHF_CANARY_MARKS", "")
    root = os.getpid()
    try:
        with open(os.path.join(folder, f"seen.{os.getppid()}")) as stream:  # noqa: PTH118, PTH123
            root = int(stream.readline())
    except (OSError, ValueError):
        pass
    text = f"{root}\n{sys.executable or ''}"
    mark("seen", text)
    os.register_at_fork(after_in_child=lambda: mark("seen", text))
    return root


def mark(name: str, text: str = "") -> None:
    """Leaves a file that says how far this process came."""
    folder = os.environ.get("_RLHF_CANARY_MARKS")
    if folder:
        try:
            with open(os.path.join(folder, f"{name}.{os.getpid()}"), "w") as stream:  # noqa: PTH118, PTH123
                stream.write(text)
        except OSError:
            return


def begin() -> None:
    """Takes this folder off the path, hooks, and gives the word to whom it belongs."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100
    if os.environ.get("_RLHF_CANARY_JOB"):
        root = seen()
        wanted: dict[str, Callable[[ModuleType], None]] = {"transformers.trainer": trains}
        if os.environ.get("_RLHF_CANARY_FILES"):
            wanted |= noted_files(root)
        sys.meta_path.insert(0, Finder(wanted))
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


begin()
