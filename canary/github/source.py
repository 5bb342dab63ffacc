"""What an answer is about and where it comes from. Pure data."""

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
"""Of several canaries, the one that decides for all: fail closed."""


NO_COMMIT = "0" * 40
"""In a dry run: stands for the commit that nobody named."""


@dataclass(frozen=True)
class Source:
    """The commit that was judged, and the workflow run that says so."""

    sha: str
    """Head of the pull request, or the pushed commit; never a merge commit."""
    url: str = ""
    """Address of the workflow run."""
    run_id: int = 0
    attempt: int = 1
    origin: str = ""
    """owner/name of the repository that the commit came from; empty outside of a run."""

    @property
    def named(self) -> bool:
        """Whether there is a commit to show."""
        return self.sha != NO_COMMIT

    @property
    def age(self) -> tuple[int, int]:
        """Orders runs of one commit: later runs and attempts are larger."""
        return (self.run_id, self.attempt)


@dataclass(frozen=True)
class Answer:
    """What is said of one canary."""

    canary: str
    comparison: Comparison
    config: str = ""
    """Path of its config in the repository; empty for what a person posts."""
    note: str = ""
    """The note of the comparison that the comment shows under the first line."""

    @property
    def key(self) -> str:
        """What tells it from every other canary of the repository, as part of a file's name."""
        return own_slug(self.config or self.canary)

    @property
    def verdict(self) -> str:
        """Its verdict; an accepted change is none to worry about."""
        return self.comparison.verdict


def blocks(found: Comparison, strict: bool) -> bool:
    """Whether this answer keeps a pull request from being merged."""
    return found.exit_code(strict) != 0


def worst(answers: tuple[Answer, ...], strict: bool) -> Answer:
    """The answer that decides for all: one that blocks before one that does not."""
    return min(
        answers,
        key=lambda answer: (
            not blocks(answer.comparison, strict),
            WORST_FIRST.index(answer.comparison.verdict),
        ),
    )
