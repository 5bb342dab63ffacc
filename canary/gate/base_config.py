"""Read the base branch's config: a pull request cannot loosen its thresholds, tier or steps."""

from __future__ import annotations

import json
import os
import posixpath
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from canary.config.load import LoadedConfig, load_config
from canary.config.source import LARGEST as LARGEST
from canary.config.source import parse, read_chain
from canary.errors import ConfigError
from canary.machine.git import Ended, run_git

Reader = Callable[[str], bytes | None]
"""Returns a file's content at one commit, by its path in the repository; None if it is missing."""

HELD = (
    "max_steps",
    "look_steps",
    "exact",
    "metrics_warmup_steps",
    "repeats",
    "timeout",
    "import",
)
"""The pull request's run takes these keys from the base branch's config."""
AT_LEAST = ("max_steps", "look_steps")
"""A run with lower values would prove less."""
AT_MOST = ("metrics_warmup_steps",)
"""A run with higher values would leave fewer steps to judge."""
MOST_LAYERS = 10


def repository_path(folder: str, config: str) -> str:
    """Return a config's path in the repository.

    Raises:
        ConfigError: the path leads out of the repository.
    """
    joined = posixpath.normpath(posixpath.join(folder or ".", config))
    if PurePosixPath(joined).is_absolute() or joined.split("/")[0] == "..":
        raise ConfigError(
            f"config {config!r} is outside the repository", "give a path inside the repository"
        )
    return joined


def load_base_config(read: Reader, path: str) -> LoadedConfig | None:
    """Load the base commit's config with all that it extends; None if the base has no such file.

    Raises:
        ConfigError: the base branch's config is invalid.
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
    """Return a placeholder setting if the config leaves `command` to the workflow's input."""
    values, _ = read_chain(file)
    waits = values.get("training_type") == "exec" and not values.get("command")
    return ANY_COMMAND if waits else ()


def _fetch(read: Reader, path: str, root: Path, depth: int) -> bool:
    """Write a config and those that it extends below `root`, at their paths in the repository."""
    if depth > MOST_LAYERS:
        raise ConfigError(f"{path} extends more than {MOST_LAYERS} configs", "merge some of them")
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
            raise ConfigError(f"{path} on the base branch extends {below}, which is missing")
    return True


def _extends(file: Path, shown: str) -> str | None:
    try:
        values, _ = parse(file.read_text(encoding="utf-8"), Path(shown))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown} on the base branch is not UTF-8 text") from error
    below = values.get("extends")
    return below if isinstance(below, str) and below else None


def held_settings(base: LoadedConfig) -> list[str]:
    """Return `--set` values that apply the base branch's keys (`HELD`) to this run."""
    values: dict[str, Any] = {key: getattr(base.config, key) for key in HELD}
    section = base.config.imports
    # All its keys, because a setting is merged into the pull request's section.
    values["import"] = None if section is None else json.dumps(section.model_dump())
    held = [f"{key}={value}" for key, value in values.items() if value is not None]
    if section is None:
        held.append("import=null")
    if base.config.metrics:
        # A record keeps the curves of its own gates: it needs those that will judge it.
        held.append(f"metrics={json.dumps([gate.written() for gate in base.config.metrics])}")
    return held


def fork_point(repository: Path, base: str) -> str:
    """Return the merge base of the checkout and the base; the base itself in a shallow checkout."""
    return _git(repository, "merge-base", base, "HEAD").text or base


def git_reader(repository: Path, commit: str) -> Reader:
    """Return a reader of a commit's files in a checkout; a missing commit has no files."""

    def read(path: str) -> bytes | None:
        done = _git(repository, "cat-file", "blob", f"{commit}:{path}")
        return done.out if done.code == 0 else None

    return read


def _git(repository: Path, *arguments: str) -> Ended:
    """Run git without a timeout: a partial clone may have to fetch the commit first."""
    return run_git(repository, *arguments, environ=os.environ, timeout_s=None)
