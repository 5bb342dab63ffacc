"""User code given by dotted path in the config: find it, call it, and name it if it fails.

`package.module:function` is imported from the working directory. A path that cannot be found, or
gives the wrong type, raises ConfigError with the key and the path. A failure during the training
raises RunFailed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import CanaryError, ConfigError, RunFailed, did_you_mean, nearest
from canary.protocol.failure import is_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, TrainerCallback

    from canary.protocol.spec import WorkloadSpec

OURS = str(Path(__file__).resolve().parents[1])


def load(key: str, path: str) -> Any:
    """Return the object at `path` (`package.module:name`, with dots for inner names).

    Raises:
        ConfigError: module or name is missing, or the import fails.
    """
    module_name, _, names = path.partition(":")
    found = _import(key, path, module_name)
    for name in names.split("."):
        if not hasattr(found, name):
            file = getattr(sys.modules[module_name], "__file__", None) or module_name
            raise ConfigError(
                f"{key} names '{path}', but {module_name} has no '{name}'",
                did_you_mean(nearest(name, dir(found)), f"define it in {file}"),
                key=key,
            )
        found = getattr(found, name)
    return found


def _import(key: str, path: str, name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(ConfigError, key, path, f"importing {name}", error) from error
        raise ConfigError(
            f"{key} names '{path}', but module '{error.name}' is missing",
            f"put it into the working directory ({here}), or install its package",
            key=key,
        ) from error
    except Exception as error:
        # The user's module may raise anything while it is imported.
        raise _failed(ConfigError, key, path, f"importing {name}", error) from error


def load_callable(key: str, path: str) -> Callable[..., Any]:
    """As `load`. Raises ConfigError also for an object that cannot be called."""
    found = load(key, path)
    if not callable(found):
        raise ConfigError(
            f"{key} names '{path}', which cannot be called (its type is {type(found).__name__})",
            "name a function",
            key=key,
        )
    return found


@contextlib.contextmanager
def explained(kind: type[CanaryError], key: str, path: str) -> Iterator[None]:
    """Run the user's code. Its exception becomes a `kind` that says where it was raised. Errors of
    the canary and out-of-memory errors pass unchanged."""
    try:
        yield
    except Exception as error:
        # User code may raise anything.
        if isinstance(error, CanaryError) or is_out_of_memory(error):
            raise
        raise _failed(kind, key, path, "it", error) from error


def call(
    kind: type[CanaryError],
    key: str,
    path: str,
    function: Callable[..., Any],
    *args: Any,
    **kw: Any,
) -> Any:
    """Return `function(*args, **kw)`, with its errors `explained`."""
    with explained(kind, key, path):
        return function(*args, **kw)


def _failed(
    kind: type[CanaryError], key: str, path: str, doing: str, error: Exception
) -> CanaryError:
    text = " ".join(str(error).split())[:300]
    name = type(error).__name__
    message = f"{key} '{path}': {doing} raised {name}{f': {text}' if text else ''}{_place(error)}"
    hint = "correct it there"
    if kind is ConfigError:
        return ConfigError(message, hint, key=key)
    return RunFailed(message, "failed", hint)


def _place(error: Exception) -> str:
    """Return ` (at FILE:LINE)` for the innermost line, of the user's code if there is one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" (at {error.filename}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", OURS))
    ]
    of_user = [frame for frame in frames if "site-packages" not in frame.filename]
    if not frames:
        return ""
    frame = (of_user or frames)[-1]
    return f" (at {frame.filename}:{frame.lineno})"


def refused(key: str, path: str, what: str, hint: str) -> ConfigError:
    """Return the error for the user's code at `path`; `what`: what it did or is."""
    return ConfigError(f"{key} '{path}' {what}", hint, key=key)


class NamedCall:
    """A user's function whose errors name its config key and path."""

    def __init__(self, key: str, path: str, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self.key, self.path, self.function = key, path, function
        self.__name__: str = getattr(function, "__name__", path.rpartition(":")[2])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call(RunFailed, self.key, self.path, self.function, *args, **kwargs)


def data_collator(spec: WorkloadSpec, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return the config's collator, None for trl's. A class is called with the tokenizer."""
    key, path = "data_collator", spec.config.data_collator
    if path is None:
        return None
    found = load_callable(key, path)
    if inspect.isclass(found):
        found = call(ConfigError, key, path, found, tokenizer)
        if not callable(found):
            raise ConfigError(
                f"{key} '{path}': its instances cannot be called", "give it __call__", key=key
            )
    return NamedCall(key, path, found)


def callbacks(spec: WorkloadSpec) -> list[TrainerCallback] | None:
    """Return the config's callbacks, created for this launch; None without any."""
    return [_callback(path) for path in spec.config.callbacks] or None


def _callback(path: str) -> TrainerCallback:
    from transformers import TrainerCallback

    key = "callbacks"
    found = load(key, path)
    if not isinstance(found, TrainerCallback):
        found = call(ConfigError, key, path, load_callable(key, path))
    if not isinstance(found, TrainerCallback):
        what = f"gives a {type(found).__name__} instead of a TrainerCallback"
        hint = "name a subclass of transformers.TrainerCallback, or a function that returns one"
        raise refused(key, path, what, hint)
    return found
