"""The relations of `canary check` as checks of a comparison: what is broken now and was not before.

They are asked of one commit alone. So they need no noise, but the answer of an earlier commit says
whether this change broke them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from canary.compare.checks import RELATIONS as NAME
from canary.compare.checks import check_of, relation_check
from canary.compare.heuristics import with_likely_cause
from canary.compare.report import Check, CheckStatus, Comparison
from canary.compare.verdict import first_line
from canary.relations.relation import Outcome, Relation, RelationStatus

MOST_LOST = 3
"""Relations that no longer hold, each with a line of its own."""


@dataclass(frozen=True)
class Before:
    """What the check of an earlier commit showed."""

    statuses: Mapping[str, RelationStatus]
    commit: str
    """Its first digits."""


def relation_checks(
    found: Sequence[tuple[Relation, Outcome]], before: Before | None
) -> tuple[Check, ...]:
    """Return a check for each broken relation, and one for all that hold.

    A broken relation fails only if the earlier check asked it and it was not broken there.

    Args:
        found: the relations and what they showed.
        before: the stored check of the base; None without one.
    """
    return (*_broken(found, before), *_held(found, before))


def _broken(found: Sequence[tuple[Relation, Outcome]], before: Before | None) -> Iterator[Check]:
    for relation, one in found:
        if one["status"] != "broken":
            continue
        was = before.statuses.get(relation.id) if before is not None else None
        status: CheckStatus = "warn" if was in (None, "broken", "not asked") else "fail"
        place = f"{one['place']}: " if one["place"] not in one["message"] else ""
        words = f"relation {relation.id} is broken: {place}{one['message']}"
        if before is None or was is None:
            words += "; no stored check says whether it was broken before"
        elif was == "not asked":
            words += f"; it was not asked at {before.commit}"
        elif was == "broken":
            words += f"; this is known: it was broken at {before.commit} too"
        else:
            words += f"; at {before.commit} it was {_as_word(was)}"
        likely = relation.likely.rstrip(".")
        words += f". Likely: {likely}" if likely else ""
        yield relation_check(relation.id, status, words)


def _held(found: Sequence[tuple[Relation, Outcome]], before: Before | None) -> Iterator[Check]:
    statuses = [one["status"] for _, one in found]
    held, broken = statuses.count("holds"), statuses.count("broken")
    if before is not None:
        lost = [
            (relation, one)
            for relation, one in found
            if before.statuses.get(relation.id) == "holds"
            and one["status"] not in ("holds", "broken")
        ]
        for relation, one in lost[:MOST_LOST]:
            words = f"relation {relation.id} held at {before.commit} and is {one['status']} now"
            yield relation_check(relation.id, "warn", f"{words}: {one['message']}")
        if rest := [relation.id for relation, _ in lost[MOST_LOST:]]:
            words = f"{len(rest)} more relations held at {before.commit} and do not now"
            yield check_of(NAME, "warn", f"{words}: {', '.join(rest)}")
    if held:
        yield check_of(NAME, "pass", f"{held} relation{'s hold' if held != 1 else ' holds'}")
    elif not broken:
        yield check_of(NAME, "inconclusive", "no relation could be tested")


def _as_word(status: RelationStatus) -> str:
    return "not broken" if status == "holds" else status


def with_relations(found: Comparison, checks: Sequence[Check]) -> Comparison:
    """Return a comparison with these checks too: a failed one makes it a regression."""
    merged = (*found.checks, *checks)
    more = replace(found, checks=merged)
    if found.verdict == "error":
        return more
    if any(check.status == "fail" for check in checks):
        if found.verdict == "regression" and not any(check.failed for check in found.checks):
            return more  # A crash, which says more.
        line = first_line(
            "regression",
            merged,
            found.first_difference,
            found.config_changes,
            found.environment_changes,
            history=0,
        )
        if found.verdict == "regression":
            line = with_likely_cause(line, "regression", found.diagnosis)
        return replace(more, verdict="regression", first_line=line, accepted=None)
    undecided = next((check for check in checks if check.status == "inconclusive"), None)
    if undecided is not None and found.verdict == "pass":
        return replace(
            more, verdict="inconclusive", first_line=f"Inconclusive: {undecided.message}."
        )
    warned = [check.message for check in checks if check.status == "warn"]
    if not warned:
        return more
    others = f" ({len(warned) - 1} more)" if len(warned) > 1 else ""
    return replace(more, first_line=f"{found.first_line} Warning: {warned[0]}{others}.")
