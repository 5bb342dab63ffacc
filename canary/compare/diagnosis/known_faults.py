"""Known faults that a change of a package brought in or ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from canary.advisories.advisory import advisories
from canary.advisories.condition import Known
from canary.advisories.facts import known_of
from canary.advisories.matching import Match, matches
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence

MOST = 4
"""Faults that a suspect names."""


def known_faults(facts: Facts) -> tuple[Evidence, ...]:
    """Return the faults of the current packages that the baseline's had not, and the reverse.

    The training's settings are the current ones on both sides: a fault that a setting makes
    effective is the setting's evidence.
    """
    if not any(c.key.startswith("packages.") for c in facts.report.environment_changes):
        return ()
    now, before = known_of(facts.now), facts.before.env.get("packages", {})
    return tuple(_evidence(now, before))[:MOST]


def _evidence(now: Known, before: Mapping[str, str | None]) -> Iterator[Evidence]:
    listed = advisories()
    was = {one.advisory.id: one for one in matches(listed, Known(before, now.facts))}
    has = {one.advisory.id: one for one in matches(listed, now)}
    for match in has.values():
        if match.advisory.id not in was and before.get(match.advisory.package) is not None:
            yield _of(match, before, now.packages, "has a known fault")
    for match in was.values():
        if match.advisory.id not in has and now.packages.get(match.advisory.package) is not None:
            yield _of(match, before, now.packages, "ended a known fault, which changes results")


def _of(
    match: Match, before: Mapping[str, str | None], after: Mapping[str, str | None], what: str
) -> Evidence:
    one = match.advisory
    was, now = before.get(one.package), after.get(one.package)
    moved = f"{one.package} {was} -> {now}" if was != now else f"{one.package} {now}"
    only_if = f", if {match.only_if}" if match.only_if else ""
    source = one.link if now == match.version else one.fix or one.link
    words = f"{moved} {what} ({one.id}){only_if}: {one.wrong} {source}"
    return Evidence("environment", words, was, now)
