"""What `canary bisect --format json` says and leaves behind; all names of keys are here."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_USAGE
from canary.record.folder import load_record
from tests.integration.bisect.repository import Repository
from tests.integration.conftest import Finished, canary

FOUND = EXIT_OK
"""A commit or package is named."""
NOT_FOUND = EXIT_INCONCLUSIVE
"""Several are left."""
WRONG_QUESTION = EXIT_USAGE
"""The ends do not differ."""
LONGEST_S = 1500
ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    "OMP_NUM_THREADS": "1",
    "PIP_NO_INDEX": "1",
    "UV_NO_INDEX": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""`python` is the one with torch; nothing comes from an index."""


@dataclass(frozen=True)
class Answer:
    """One ended bisect."""

    finished: Finished

    @property
    def document(self) -> dict[str, Any]:
        """The JSON on standard output."""
        assert self.finished.out.strip(), self.finished.err
        return json.loads(self.finished.out)

    @property
    def code(self) -> int:
        """Exit code."""
        return self.finished.code

    @property
    def culprit(self) -> dict[str, Any] | None:
        """The one suspect that is left."""
        return self.document["culprit"]

    @property
    def commit(self) -> str | None:
        """The culprit's hash."""
        return self.culprit["sha"] if self.culprit else None

    @property
    def suspects(self) -> list[dict[str, Any]]:
        """All that may be the culprit; one if it is found."""
        return self.document["candidates"]

    @property
    def commits(self) -> set[str]:
        """The suspects' hashes."""
        return {suspect["sha"] for suspect in self.suspects}

    @property
    def package(self) -> tuple[str, str]:
        """Name and first bad version."""
        assert self.culprit, self.finished.err
        return self.culprit["package"], self.culprit["first_bad"]

    @property
    def candidates(self) -> int:
        """Candidates that were run or tried, without both ends."""
        return sum(len(stage["search"]) for stage in self._stages)

    @property
    def runs(self) -> int:
        """All runs: ends, candidates and the last pairs."""
        return sum(len(stage["runs"]) for stage in self._stages)

    @property
    def last_step(self) -> dict[str, Any]:
        """That of the last search."""
        return self._stages[-1]["last_step"]

    @property
    def _stages(self) -> list[dict[str, Any]]:
        """The searches; of packages there are several."""
        return self.document["stages"]

    @property
    def text(self) -> str:
        """All that it said, in small letters."""
        return f"{self.finished.out} {self.finished.err}".lower()


def bisect(folder: Path, *arguments: str, wheels: Path | None = None) -> Answer:
    """`canary bisect` in a folder. `wheels`: where packages come from."""
    words = ("bisect", *arguments, "--format", "json")
    more = ENVIRONMENT | ({"PIP_FIND_LINKS": str(wheels)} if wheels else {})
    return Answer(canary(*words, cwd=folder, timeout=LONGEST_S, more=more))


def ends(repository: Repository) -> tuple[str, ...]:
    """The options that name both ends."""
    return ("--good", repository.first, "--bad", repository.last)


def runs_left(repository: Repository) -> dict[Path, str]:
    """The folder of each completed run of a bisect, with its commit."""
    found = {}
    for path in (repository.root / "canary_output").rglob("metrics.json"):
        record = load_record(path.parent)
        if record.status == "completed":
            found[path.parent] = str(record.git["sha"])
    return found
