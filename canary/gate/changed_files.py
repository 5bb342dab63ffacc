"""What a pull request changed, as GitHub tells it: evidence for the diagnosis, never a ground."""

from __future__ import annotations

from itertools import islice

from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.errors import MachineError
from canary.gate.context import Case, World
from canary.github.client import Refused

MOST_FILES = 200


def changed_files(case: Case, world: World) -> SourceChanges:
    """The files and lines of the pull request; nothing without one, or where GitHub does not tell.

    A diagnosis does without them; so a refusal is no error.
    """
    pull = case.pull
    if pull is None:
        return SourceChanges()
    what = f"the files of pull request #{pull.number}"
    try:
        files = world.hub.read(what, lambda: list(islice(pull.get_files(), MOST_FILES)))
    except (Refused, MachineError):
        return SourceChanges()
    return parse_diff("\n".join(f"+++ b/{file.filename}\n{file.patch or ''}" for file in files))
