"""`canary exec`: a user's command as a canary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from canary.config.command_line import name_of
from canary.config.load import FROM_COMMAND, LoadedConfig, load_values
from canary.errors import EXIT_OK, UsageError
from canary.protocol.job import Listener
from canary.record.types import RunRecord
from canary.runner.outcome import exit_code, failure_text, outcome_text
from canary.runner.run import run_canary


@dataclass(frozen=True)
class ExecRequest:
    """The command and options of `canary exec`."""

    command: tuple[str, ...]
    name: str | None = None
    max_steps: int | None = None
    config: Path | None = None
    exact: bool = False
    stop_on: str | None = None
    threads: int | None = None
    settings: tuple[str, ...] = ()
    """`--set` values, for keys without an option."""

    def given(self) -> dict[str, tuple[Any, str]]:
        """Return the config keys that the command line sets: value and option of each."""
        found: dict[str, tuple[Any, str]] = {
            "training_type": ("exec", "canary exec"),
            "command": (list(self.command), "canary exec"),
        }
        for key in ("name", "max_steps", "exact", "stop_on", "threads"):
            value = getattr(self, key)
            if value is not None and value is not False:
                found[key] = (value, f"--{key.replace('_', '-')}")
        return found


def load_request(request: ExecRequest) -> LoadedConfig:
    """Return the config of a command; the command line overrides the file.

    Raises:
        UsageError: no command, a command that cannot be watched, or a key that does not apply.
    """
    if not request.command:
        raise UsageError("no command to run", "canary exec -- python train.py")
    loaded = load_values(request.config, request.given(), request.settings)
    name = name_of(request.command)
    if loaded.is_named or name is None:
        return loaded
    config = loaded.config.model_copy(update={"name": name})
    return replace(loaded, config=config, origins=loaded.origins | {"name": FROM_COMMAND})


def run_command(
    request: ExecRequest, listener: Listener, output_dir: Path | None, verbose: bool
) -> tuple[RunRecord, Path, int, str]:
    """Run the command, watched. Return its record, the run's folder, the exit code (the command's
    if it failed) and the text for the terminal.

    Raises:
        UsageError: a wrong command, option or config.
        MachineError: the record cannot be written.
    """
    loaded = load_request(request)
    record, run_dir, result = run_canary(loaded, listener, output_dir, echo=True)
    if result.status != "completed":
        code = result.command_code
        if code is None or result.usage_error:
            code = exit_code(result)
        text = failure_text(result, run_dir, verbose)
        return record, run_dir, code if code >= 0 else 128 - code, text
    return record, run_dir, EXIT_OK, outcome_text(record)
