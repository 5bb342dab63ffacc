"""The base branch's config: thresholds, tier, steps and name that a pull request cannot loosen."""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from canary.config.load import LoadedConfig, load_config
from canary.config.source import parse, read_chain
from canary.errors import ConfigError
from canary.machine.git import Ended, run_git

Reader = Callable[[str], bytes | None]
"""The content of a file at one commit by its path in the repository; None where there is none."""

HELD = ("max_steps", "probe_steps", "metrics_warmup_steps", "repeats", "timeout", "tier")
"""Keys of the base branch's config that hold for the pull request's run too."""
AT_LEAST = ("max_steps", "probe_steps")
"""Keys whose lowering would make a run say less."""
AT_MOST = ("metrics_warmup_steps",)
"""Keys whose raising would leave less to be judged."""
MOST_LAYERS = 10
LARGEST = 1 << 20


def repository_path(folder: str, config: str) -> str:
    """A config's path in the repository, from the working directory.

    Raises:
        ConfigError: it leads out of the repository.
    """
    joined = posixpath.normpath(posixpath.join(folder or ".", config))
    if PurePosixPath(joined).is_absolute() or joined.split("/")[0] == "..":
        raise ConfigError(f"config {config!r} is not inside the repository", "name a path in it")
    return joined


def load_base_config(read: Reader, path: str) -> LoadedConfig | None:
    """The config at the base commit with all it extends; None where the base has none.

    Raises:
        ConfigError: the base branch's own config is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="canary-base-") as scratch:
        root = Path(scratch)
        if not _fetch(read, path, root, 0):
            return None
        try:
            return load_config(root / path, without_command(root / path))
        except ConfigError as error:
            said = error.message.replace(f"{root}/", "")
            raise ConfigError(said, error.hint, key=error.key) from error


ANY_COMMAND = ("command=[the input command]",)


def without_command(file: Path) -> tuple[str, ...]:
    """A setting that completes a config whose command the workflow's input gives."""
    values, _ = read_chain(file)
    waits = values.get("training_type") == "exec" and not values.get("command")
    return ANY_COMMAND if waits else ()


def _fetch(read: Reader, path: str, root: Path, depth: int) -> bool:
    """Lays a config, and those that it extends, below the root as they lie in the repository."""
    if depth > MOST_LAYERS:
        raise ConfigError(f"{path} extends more than {MOST_LAYERS} configs", "flatten it")
    content = read(path)
    if content is None:
        return False
    if len(content) > LARGEST:
        raise ConfigError(f"{path} on the base branch is too large for a config")
    target = root / path
    if target.exists():
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    below = _extends(target, path)
    if below is not None:
        inner = repository_path(posixpath.dirname(path), below)
        if not _fetch(read, inner, root, depth + 1):
            raise ConfigError(f"{path} on the base branch extends {below}, which is not there")
    return True


def _extends(file: Path, shown: str) -> str | None:
    try:
        values, _ = parse(file.read_text(encoding="utf-8"), Path(shown))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown} on the base branch is not text") from error
    below = values.get("extends")
    return below if isinstance(below, str) and below else None


def held_settings(base: LoadedConfig, tier: str = "", repeats: str = "") -> list[str]:
    """`--set` values that carry the base branch's steps over to the pull request's run."""
    values: dict[str, Any] = {key: getattr(base.config, key) for key in HELD}
    if repeats:
        values["repeats"] = repeats
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def fork_point(repository: Path, base: str) -> str:
    """Where the checked out commit left the base branch; the base itself in a shallow checkout."""
    return _git(repository, "merge-base", base, "HEAD").text or base


def git_reader(repository: Path, commit: str) -> Reader:
    """Reads files of a commit from a checkout; None for all where the commit is not there."""

    def read(path: str) -> bytes | None:
        done = _git(repository, "cat-file", "blob", f"{commit}:{path}")
        return done.out if done.code == 0 else None

    return read


def _git(repository: Path, *arguments: str) -> Ended:
    """A command that reads commits alone, which a partial clone may have to fetch."""
    return run_git(repository, *arguments, environ=os.environ, timeout_s=None)
