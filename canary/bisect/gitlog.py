"""The log that `git bisect replay` reads: which commits were good, bad or skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from canary.bisect.commits import History
from canary.bisect.finding import Found
from canary.bisect.model import Outcome, State
from canary.errors import printable

SURE = 0.95
"""A noisy commit is good or bad if the search is at least so sure."""


def git_bisect_log(history: History, found: Found) -> str:
    """Return the log. Git has no word for a commit that noise leaves open: it is left out."""
    lines = ["git bisect start"]
    lines += _lines(history, "bad", history.bad) + _lines(history, "good", history.good)
    marked: list[tuple[Outcome, str]] = []
    for state, outcome in _outcomes(history, found):
        marked.append((outcome, history.sha(state)))
    if found.decided:
        (culprit,) = found.answer.suspects
        commit = history.commits[culprit]
        # Git takes the last bad commit as the newest one that can be the culprit.
        marked = [one for one in marked if one != ("bad", commit.sha)]
        marked += [("good", parent) for parent in commit.parents]
        marked.append(("bad", commit.sha))
    elif found.answer.decided:
        marked += [("bad", newest) for newest in _newest_of(history, found.answer.suspects)]
    for outcome, sha in dict.fromkeys(marked):
        lines += _lines(history, outcome, sha)
    if found.decided:
        lines.append(f"# first bad commit: [{commit.sha}] {printable(commit.subject)}")
    return "\n".join(lines) + "\n"


def _newest_of(history: History, suspects: Sequence[int]) -> Iterator[str]:
    """Yield the suspect that has all others, if there is one: it is bad, whichever did it. Git does
    not conclude that from several bad commits that are not ancestors of each other."""
    all_of_them = sum(1 << place for place in suspects)
    for place in suspects:
        sha = history.commits[place].sha
        if history.state(sha) & all_of_them == all_of_them:
            yield sha


def _outcomes(history: History, found: Found) -> Iterator[tuple[State, Outcome]]:
    """Yield the outcome of each state that was run, once, in order."""
    last = {one.seen.state: one.seen for one in found.shown}
    for state in dict.fromkeys(one.seen.state for one in found.shown):
        if state in (0, history.bad_state):
            continue
        outcome = last[state].outcome or _likely(state, found.posterior)
        if outcome is not None:
            yield state, outcome


def _likely(state: State, posterior: Sequence[float]) -> Outcome | None:
    held = sum(share for place, share in enumerate(posterior) if state >> place & 1)
    return "bad" if held >= SURE else "good" if held <= 1.0 - SURE else None


def _lines(history: History, outcome: str, sha: str) -> list[str]:
    subject = next((c.subject for c in history.commits if c.sha == sha), "")
    return [f"# {outcome}: [{sha}] {printable(subject)}".rstrip(), f"git bisect {outcome} {sha}"]
