"""Ask GitHub what a pull request changed: evidence for the diagnosis, never for the verdict."""

from __future__ import annotations

from itertools import islice

from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.errors import MachineError
from canary.gate.context import Case, World
from canary.github.client import Refused

MOST_FILES = 200


def changed_files(case: Case, world: World) -> SourceChanges:
    """Return the pull request's files and lines; nothing without a pull request or if GitHub
    refuses, because a diagnosis works without them."""
    pull = case.pull
    if pull is None:
        return SourceChanges()
    what = f"the files of pull request #{pull.number}"
    try:
        files = world.hub.read(what, lambda: list(islice(pull.get_files(), MOST_FILES)))
    except (Refused, MachineError):
        return SourceChanges()
    return parse_diff("\n".join(f"+++ b/{file.filename}\n{file.patch or ''}" for file in files))
