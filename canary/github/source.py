"""An answer's canary, commit and workflow run. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from canary.baseline.comparability import own_slug
from canary.compare.report import Comparison, Verdict

WORST_FIRST: tuple[Verdict, ...] = (
    "error",
    "regression",
    "changed",
    "inconclusive",
    "no-baseline",
    "pass",
)
"""Of several canaries, the first in this order decides for all: fail closed."""


NO_COMMIT = "0" * 40
"""Placeholder for an unknown commit in a dry run."""


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

    @property
    def named(self) -> bool:
        """Whether the commit is known."""
        return self.sha != NO_COMMIT

    @property
    def age(self) -> tuple[int, int]:
        """Run and attempt: larger for later runs of a commit."""
        return (self.run_id, self.attempt)


@dataclass(frozen=True)
class Answer:
    """The answer for one canary."""

    canary: str
    comparison: Comparison
    config: str = ""
    """Its config's path in the repository; empty if a person posts it."""
    note: str = ""
    """The comparison's note that the comment shows below the first line."""

    @property
    def key(self) -> str:
        """Its unique name in the repository, usable in file names."""
        return own_slug(self.config or self.canary)

    @property
    def verdict(self) -> str:
        """The comparison's verdict."""
        return self.comparison.verdict


def blocks(found: Comparison, strict: bool) -> bool:
    """Return whether this answer blocks the merge of a pull request."""
    return found.exit_code(strict) != 0


def worst(answers: tuple[Answer, ...], strict: bool) -> Answer:
    """Return the answer that decides for all; answers that block come first."""
    return min(
        answers,
        key=lambda answer: (
            not blocks(answer.comparison, strict),
            WORST_FIRST.index(answer.comparison.verdict),
        ),
    )
