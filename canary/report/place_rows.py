"""The changed places of a comparison as strings, and what to do about them."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.checks import CHECKS
from canary.compare.diagnosis.suspects import RegressionCategory
from canary.compare.place_words import SHOWN, ChangedLines, change_of, only, whole_change
from canary.compare.ran_lines import MODULE
from canary.compare.report import Comparison
from canary.compare.verdict import leading_failure
from canary.errors import counted, cut

MEANT = "Intended? Pass --accept REASON; in CI, merge despite the failed job. Otherwise undo it."
MEND = "Mend it, or undo the change."
NOWHERE = "config and packages are equal. Look at data and machine"
LONGEST = 60
"""Characters of the path of a file that few trainings read."""


@dataclass(frozen=True)
class PlaceRow:
    """A changed place as shown."""

    where: str
    """`train.py:88`, a config key or a package."""
    note: str
    """More about it: `in collate, the only changed code that ran`."""
    text: str
    """Its first changed line, or the value."""
    was: str = ""
    """That line, or the value, before an edit."""
    how: str = ""
    """`added`, `removed` or `moved`; empty for an edit."""
    path: str = ""
    """Of code: the file, for a link to it."""
    line: int | None = None
    changes: tuple[ChangedLines, ...] = ()
    """All changed lines, if there are several; shown instead of `was` and `text`."""
    is_error: bool = False
    """Whether a run failed here; `text` is then the error."""


def place_rows(found: Comparison) -> tuple[PlaceRow, ...]:
    """Return the first changed places of a comparison in which something differs, after the line
    at which the current run failed."""
    if found.verdict in ("pass", "no-baseline"):
        return ()
    failed = found.places.failed
    rows, alone = [], only(found.places)
    for place in (*filter(None, [failed]), *found.places.ran)[:SHOWN]:
        how, was, text = change_of(place)
        note = f"in {place.function}" if place.function not in ("", MODULE) else ""
        if place is failed:
            note = f"{note} failed".lstrip()
            note += f" (raised at {place.raised})" if place.raised else ""
        elif alone:
            note = f"{note}, {alone}" if note else f"is {alone}"
        elif failed and not how:
            note = f"{note} changed".lstrip()
        line = f":{place.line}" if place.line is not None else ""
        path = place.name if place.kind == "code" else ""
        where, changes = f"{place.name}{line}", whole_change(place)
        rows.append(
            PlaceRow(where, note, text, was, how, path, place.line, changes, place is failed)
        )
    return tuple(rows)


def is_explained_crash(found: Comparison) -> bool:
    """Return whether a crash names its error, so that `unknown` as the cause would add nothing."""
    named = {suspect.category for suspect in found.diagnosis.suspects}
    return found.places.failed is not None and named <= {RegressionCategory.UNKNOWN}


def not_run(found: Comparison) -> str:
    """Return a sentence about changed code that did not run; empty if a difference has places."""
    names = [f"{place.name}:{place.line}" for place in found.places.not_run]
    if not names or (found.verdict != "pass" and found.places.ran) or not compared(found):
        return ""
    *others, last = names if len(names) <= SHOWN else [*names[:SHOWN], f"{len(names) - SHOWN} more"]
    steps, them = found.places.steps, "them" if others else "it"
    look = f"the {counted(steps, 'compared step')}" if steps else "the look"
    every = f"{', '.join(others)} and {last}" if others else last
    if found.places.by_line:
        return f"{every} changed, and did not run in {look}: raise look_steps to compare {them}"
    only_late = "they run" if others else "it runs"
    late = f"raise look_steps if {only_late} only later, not at the start"
    return f"{every} changed, and {look} did not call {them}: {late}"


def to_do(found: Comparison, remedy: str) -> str:
    """Return what to do. `remedy`: what would decide checks that are undecided; may be empty."""
    if found.places.failed:
        run = found.current.run_ids[-1:]
        return f"{MEND} The traceback is in log.txt of run {run[0]}." if run else MEND
    if found.verdict == "changed":
        who = "Someone with write permission"
        label = f"Intended? {who} can set the label {found.label}. Otherwise undo it."
        return "" if found.accepted else label if found.label else MEANT
    if found.verdict == "inconclusive":
        return f"{remedy}." if remedy and remedy not in found.first_line else ""
    if found.verdict != "regression" or not compared(found):
        return ""
    if found.places.known and not found.places.ran:
        seen = "was seen to run" if found.places.hidden else "ran"
        names = [cut(name, LONGEST) for name in found.places.unread[:SHOWN]]
        changed = f"; changed too: {', '.join(names)}" if names else ""
        return f"No changed code {seen}, and {NOWHERE}{changed}."
    if not found.places.ran:
        return ""
    lead = CHECKS.get(leading_failure(found.checks).name) if found.failed_checks else None
    limit = f", or raise {lead.limits[0]} in the config" if lead and lead.limits else ""
    return f"Undo it{limit}."


def compared(found: Comparison) -> bool:
    """Return whether the sides were compared; an error without suspects says that they were not."""
    return found.verdict != "error" or bool(found.diagnosis.suspects)
