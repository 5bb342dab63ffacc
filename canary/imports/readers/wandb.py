"""W&B's offline runs (`run-<id>.wandb`), read by wandb itself."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, entry_of, missing, shortened
from canary.imports.files import LARGEST_BINARY, LONGEST_LINE, Found
from canary.imports.readers.json_files import parse_json

SUFFIX = ".wandb"
LIMIT_S = 300.0
"""Seconds for wandb to print a run."""
INTERNAL = ("_runtime", "_wandb", "_timestamp")
"""Fields that W&B adds to each row."""


def fits(file: Found) -> bool:
    """Whether a file has W&B's ending."""
    return file.path.suffix == SUFFIX


def read(file: Found, telling: Telling) -> Iterator[Entry]:
    """Yield the history of the run.

    Raises:
        InputError: wandb is not installed, or cannot read the file.
    """
    if importlib.util.find_spec("wandb") is None:
        raise missing("W&B's offline runs", "wandb>=0.31")
    file.open(LARGEST_BINARY).close()
    ended = False
    for kind, row in _printed(file, telling):
        ended = ended or kind == "exit"
        if kind == "exit" and (code := row.get("exit_code", row.get("exitCode", 0))):
            telling.fail(f"W&B has the exit code {shortened(code)}")
        if kind == "history":
            yield entry_of(_shown(row), telling, file.name)
    if not ended:
        what = "the run did not end: W&B's last record, its exit, is missing or damaged"
        telling.tell(what, file.name)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without what W&B adds for itself, and without the parts of media."""
    media = {key.removesuffix("._type") for key in row if key.endswith("._type")}
    found: dict[str, Any] = {}
    for key, value in row.items():
        if key in media or key.rpartition(".")[0] in media:
            found[key.rpartition(".")[0] or key] = "media"
        elif isinstance(value, Mapping) and "_type" in value:
            found[key] = "media"
        elif key == "_timestamp" or not key.startswith(INTERNAL):
            found[key] = value
    return found


def _printed(file: Found, telling: Telling) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kind and row of each record that `wandb leet inspect --json` prints."""
    # -P: else Python would run a `wandb.py` of the folder in which the user stands.
    words = [sys.executable, "-P", "-m", "wandb", "leet", "inspect", "--json", str(file.path)]
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, named))
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryDirectory() as elsewhere:
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.PIPE,
                timeout=LIMIT_S,
                env=environment,
                cwd=elsewhere,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InputError(f"wandb needs more than {LIMIT_S:g} s for {file.name}") from error
        said = done.stderr.decode(errors="replace").strip().splitlines()
        _judge(done.returncode, said, file, telling)
        printed.seek(0)
        while line := printed.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise InputError(f"{file.name} has a record of more than {LONGEST_LINE >> 20} MiB")
            record = parse_json(line)
            if isinstance(record, dict):
                kind = str(record.get("type"))
                content = record.get(kind)
                if kind == "history" and isinstance(content, dict):
                    content = content.get("item")
                yield kind, content if isinstance(content, dict) else {}


def _judge(code: int, said: list[str], file: Found, telling: Telling) -> None:
    """Tell what wandb said. Raises InputError if it could not read the file."""
    last = shortened(said[-1].removeprefix("wandb leet inspect: ")) if said else f"exit code {code}"
    if "No such " in last:
        raise InputError(
            f"this version of wandb cannot read {file.name}", 'pip install "wandb>=0.31"'
        )
    if code:
        raise InputError(f"wandb cannot read {file.name}: {last}", "name a file of an offline run")
    if said:
        telling.tell(last, file.name)
