"""The commit status: GitHub's state, at most 140 characters, and where the answer is from. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from canary.baseline.comparability import own_slug
from canary.compare.paths import Compared
from canary.compare.report import WORST_FIRST, Comparison
from canary.record.types import RunRecord
from canary.report.bisect_hint import Hint
from canary.report.escape import NOT_PRINTED

State = Literal["pending", "success", "failure", "error"]
LONGEST_DESCRIPTION = 140
"""GitHub's limit in characters."""
LAST_WORDS = re.compile(r" \([^()]+\)\.?$")


@dataclass(frozen=True)
class StatusText:
    """The content of a status."""

    state: State
    description: str
    accepted: bool = False
    """Whether someone accepted a change in it."""


PENDING = StatusText("pending", "no result yet")


def status_of(answers: Sequence[Answer], strict: bool = False) -> StatusText:
    """Return one status for all canaries of a run, by the answer that decides.

    pass, no-baseline and an accepted change are `success`; inconclusive too, unless `strict`.
    regression and an unaccepted change are `failure`; error is `error`.
    """
    decides = worst(answers, strict)
    found = decides.comparison
    states: dict[str, State] = {
        "pass": "success",
        "no-baseline": "success",
        "changed": "success" if found.accepted else "failure",
        "inconclusive": "failure" if strict else "success",
        "regression": "failure",
    }
    name = f"{decides.canary}: " if len(answers) > 1 else ""
    state = states.get(found.verdict, "error")
    accepted = any(answer.comparison.accepted for answer in answers)
    line = found.first_line
    if found.verdict == "changed" and not found.accepted:
        line = f"Needs acceptance: {line.removeprefix('Changed: ')}"
    text = shortened(f"{name}{line}", with_end=state == "error")
    return StatusText(state, text, accepted)


def shortened(text: str, *, with_end: bool = False) -> str:
    """Return one line of at most `LONGEST_DESCRIPTION` characters, cut at a word.

    `with_end`: keep the words in brackets at the end, an error's remedy, and cut before them.
    """
    flat = " ".join(NOT_PRINTED.sub(" ", text).split())
    if len(flat) <= LONGEST_DESCRIPTION:
        return flat
    found = LAST_WORDS.search(flat) if with_end else None
    end = found[0] if found and len(found[0]) <= LONGEST_DESCRIPTION // 2 else ""
    cut = flat[: LONGEST_DESCRIPTION - 1 - len(end)]
    at = cut.rfind(" ")
    return f"{cut[: at if at > len(cut) // 2 else len(cut)].rstrip(' ,;:(')}…{end}"


@dataclass(frozen=True)
class Source:
    """The judged commit, and the workflow run that answers."""

    sha: str
    """Head of the pull request, or the pushed commit; never a merge commit."""
    url: str = ""
    """Address of the workflow run."""
    run_id: int = 0
    attempt: int = 1
    origin: str = ""
    """owner/name of the commit's repository; empty outside a run."""
    report: str = ""
    """The link to the report with charts, as Markdown; empty if there will be none."""

    def link(self, path: str, line: int | None) -> str:
        """Return the address of a line of the commit; empty outside a run, and for a path with
        unusual characters, because it may come from a record."""
        server = re.match(r"https://[\w.:-]+(?=/)", self.url)
        parts = path.split("/")
        usual = re.fullmatch(r"[\w./-]+", path, re.ASCII) and ".." not in parts and parts[0]
        if not (server and self.origin and line and usual):
            return ""
        return f"{server[0]}/{self.origin}/blob/{self.sha}/{path}#L{line}"

    @property
    def age(self) -> tuple[int, int]:
        """Run and attempt: larger for later runs of a commit."""
        return (self.run_id, self.attempt)


def key_of(config: str, job: str) -> str:
    """Return the unique name of a canary in the repository, usable in file names."""
    return own_slug(" ".join(filter(None, (config, job))))


@dataclass(frozen=True)
class Answer:
    """The answer for one canary, and what it was judged by."""

    canary: str
    comparison: Comparison
    config: str = ""
    """Its config's path in the repository."""
    job: str = ""
    """The name of its job, if it has one of its own: legs of a matrix may train one config."""
    note: str = ""
    """The comparison's note that the comment shows below the first line."""
    hint: Hint | None = None
    """How to find the culprit of a red history."""
    records: tuple[RunRecord, ...] = ()
    """Runs of the head, completed or not, under the base branch's name of the canary."""
    baseline: tuple[RunRecord, ...] = ()
    """The runs that they were compared with."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Where the training job's runs are, by run id."""

    @property
    def compared(self) -> Compared:
        """The comparison with its runs."""
        return Compared(self.comparison, self.records, self.baseline, self.folders)

    @property
    def key(self) -> str:
        """Its unique name in the repository, usable in file names."""
        return key_of(self.config or self.canary, self.job)

    @property
    def title(self) -> str:
        """What people call it: the canary, and the job if it has a name of its own."""
        return " ".join(filter(None, (self.canary, self.job)))

    @property
    def place(self) -> tuple[str, int] | None:
        """The changed line that did it, as far as one is known."""
        code = self.comparison.places.code
        if code and code[0].line:
            return code[0].name, code[0].line
        cause = self.comparison.diagnosis.top_suspect
        for evidence in cause.evidence if cause is not None else ():
            if evidence.kind == "git" and evidence.path and evidence.line:
                return evidence.path, evidence.line
        return None


def worst(answers: Sequence[Answer], strict: bool) -> Answer:
    """Return the answer that decides for all; answers that block come first."""
    return min(
        answers,
        key=lambda answer: (
            answer.comparison.exit_code(strict) == 0,
            WORST_FIRST.index(answer.comparison.verdict),
        ),
    )
