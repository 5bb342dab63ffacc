"""The commit status: GitHub's state and at most 140 characters of text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from canary.github.source import Answer, worst
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


def status_of(answers: tuple[Answer, ...], strict: bool = False) -> StatusText:
    """Return one status for all canaries of a run, by the answer that decides.

    pass, no-baseline and an accepted change are `success`; inconclusive too, unless `strict`.
    regression and an unaccepted change are `failure`; error is `error`.
    """
    if not answers:
        return StatusText("error", "error: the run left no record")
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
    text = shortened(f"{name}{found.first_line}", with_end=state == "error")
    return StatusText(state, text, accepted)


def shortened(text: str, longest: int = LONGEST_DESCRIPTION, *, with_end: bool = False) -> str:
    """Return one line of at most `longest` characters, cut at a word.

    `with_end`: keep the words in brackets at the end, an error's remedy, and cut before them.
    """
    flat = " ".join(NOT_PRINTED.sub(" ", text).split())
    if len(flat) <= longest:
        return flat
    found = LAST_WORDS.search(flat) if with_end else None
    end = found[0] if found and len(found[0]) <= longest // 2 else ""
    cut = flat[: longest - 1 - len(end)]
    at = cut.rfind(" ")
    return f"{cut[: at if at > len(cut) // 2 else len(cut)].rstrip(' ,;:(')}…{end}"
