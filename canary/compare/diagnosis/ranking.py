"""Turn findings into suspects: one per mechanism, less confident the more rivals it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

from canary.compare.causes.environment import environment_evidence
from canary.compare.diagnosis.chains import chained
from canary.compare.diagnosis.effects import (
    Effect,
    can_cause,
    effects,
    is_exact,
    is_timed,
    speed_failed,
)
from canary.compare.diagnosis.evidence import Finding
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.known_faults import known_faults
from canary.compare.diagnosis.suspects import Evidence, EvidenceKind, RegressionCategory, Suspect
from canary.compare.exact.stages import STAGE_OF
from canary.compare.places import SHOWN, sentence

UNKNOWN = RegressionCategory.UNKNOWN
ORDER: tuple[EvidenceKind, ...] = get_args(EvidenceKind)
UNKNOWN_ODDS = 1.0
"""Odds of an unknown cause; without rivals, a suspect's confidence is its strength."""
MOST = 0.97
LEAST = 0.1
"""Suspects below this confidence are not named."""
UNRECORDED_STRENGTH = 0.4
"""Largest strength of a finding that assumes unrecorded stages equal: below an unknown cause's."""
TIE_FACTOR = 1.05
"""Two mechanisms tie if their confidences differ by less than this factor."""


def ranked(found: Iterable[Finding], facts: Facts) -> tuple[Suspect, ...]:
    """Return suspects of the worst effects first, then of exact signals, then the likeliest.

    Rivals can cause the same effect. `unknown` comes first if the first two tie or the evidence is
    too weak for any.
    """
    findings = chained(_as_recorded(finding, facts) for finding in found)
    if not (tiers := effects(facts)):
        return _of_one_effect(findings, facts)
    listed = [_of_one_tier(tier, findings, facts) for tier in tiers]
    if _noise_alone(tiers, listed, facts):
        listed[:2] = [[*listed[1], *listed[0]]]
    first, *others = listed
    known = [s for suspects in others for s in suspects if s.category is not UNKNOWN]
    named: dict[RegressionCategory, Suspect] = {}
    for suspect in (*first, *known):
        named.setdefault(suspect.category, suspect)
    return tuple(named.values())


def _of_one_tier(
    tier: Sequence[Effect], findings: Sequence[Finding], facts: Facts
) -> list[Suspect]:
    """Return the suspects of equally bad effects, those of exact signals first."""
    by_effect = {}
    for effect in tier:
        able = [finding for finding in findings if can_cause(finding, effect, facts)]
        counted = is_exact(effect, facts) and not speed_failed(facts)
        by_effect[effect] = _of_one_effect(able, facts, times_last=counted)
    pairs = [(effect, suspect) for effect, suspects in by_effect.items() for suspect in suspects]
    pairs.sort(key=lambda pair: (not is_exact(pair[0], facts), -pair[1].confidence))
    unknown = [suspects[0] for suspects in by_effect.values() if suspects[0].category is UNKNOWN]
    known = [suspect for _, suspect in pairs if suspect.category is not UNKNOWN]
    # Explained effects come before unexplained ones.
    return [*unknown, *known] if len(unknown) == len(by_effect) else [*known, *unknown]


def _noise_alone(
    tiers: Sequence[Sequence[Effect]], listed: Sequence[Sequence[Suspect]], facts: Facts
) -> bool:
    """Return whether the worst effects are noisy and unexplained, the next exact and explained.

    For example, a busy machine slows the steps of a run that also learns differently.
    """
    if len(tiers) < 2 or any(is_exact(effect, facts) for effect in tiers[0]):
        return False
    return (
        listed[0][0].category is UNKNOWN
        and listed[1][0].category is not UNKNOWN
        and any(is_exact(effect, facts) for effect in tiers[1])
    )


def _as_recorded(finding: Finding, facts: Facts) -> Finding:
    """Return the finding, weaker if it assumes a stage equal that a side did not record."""
    missing = facts.unrecorded(finding.equal)
    if not missing:
        return finding
    entry = STAGE_OF.get(facts.entry or "")
    first = f"{entry.words} {entry.verb}. " if entry else ""
    return replace(
        finding,
        strength=min(finding.strength, UNRECORDED_STRENGTH),
        description=f"{first}Not recorded on both sides: {', '.join(missing)}",
    )


def _of_one_effect(
    findings: Iterable[Finding], facts: Facts, *, times_last: bool = False
) -> tuple[Suspect, ...]:
    """Return the suspects of one effect.

    `times_last` puts findings that rest on times alone last: a count failed, and no time did.
    """
    by_category: dict[RegressionCategory, list[Finding]] = {}
    for finding in findings:
        by_category.setdefault(finding.category, []).append(finding)
    odds = {category: _odds(findings) for category, findings in by_category.items()}
    total = sum(odds.values()) + UNKNOWN_ODDS
    unexplained = UNKNOWN_ODDS / total
    suspects = [
        _suspect(category, odds[category] / total, findings, facts)
        for category, findings in by_category.items()
    ]
    last = {
        category: times_last and all(map(is_timed, findings))
        for category, findings in by_category.items()
    }
    named = sorted(
        (s for s in suspects if s.confidence >= LEAST),
        key=lambda s: (last[s.category], -s.confidence),
    )
    if not named:
        return (_unknown(facts, unexplained, "no recorded signal explains it"),)
    if named[0].confidence < unexplained:
        words = "the evidence is too weak to name a cause"
        return (_unknown(facts, unexplained, words), *named)
    rival = next((s for s in named[1:] if last[s.category] == last[named[0].category]), None)
    if rival is not None and named[0].confidence < TIE_FACTOR * rival.confidence:
        both = named[0].confidence + rival.confidence
        words = f"{named[0].category} or {rival.category}: no recorded signal distinguishes them"
        return (_unknown(facts, both / 2, words), *named)
    return tuple(named)


def _odds(findings: Sequence[Finding]) -> float:
    """Combine the findings of one mechanism as independent evidence."""
    doubt = 1.0
    for finding in findings:
        doubt *= 1.0 - finding.strength
    strength = min(MOST, 1.0 - doubt)
    return strength / (1.0 - strength)


def _suspect(
    category: RegressionCategory, confidence: float, findings: Sequence[Finding], facts: Facts
) -> Suspect:
    ordered = sorted(findings, key=lambda finding: -finding.strength)
    evidence = [item for finding in ordered for item in finding.evidence]
    evidence += _other_changes(facts)
    unique = list({item.message: item for item in evidence}.values())
    actions = [action for finding in ordered for action in finding.actions]
    return Suspect(
        category,
        round(confidence, 3),
        _sentence(ordered[0].description),
        tuple(sorted(unique, key=lambda item: ORDER.index(item.kind))),
        tuple(dict.fromkeys(actions))[:4],
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


def _other_changes(facts: Facts) -> list[Evidence]:
    """Return what else differs; it is listed with every suspect and makes none likelier."""
    changes = [c for c in facts.report.environment_changes if not c.cosmetic]
    found = [*environment_evidence(changes), *known_faults(facts)]
    found += [change.evidence() for change in facts.settings if change.in_config][:4]
    found += _changed_code(facts)
    found += list(_alerts(facts))[:3]
    files = [file.path for file in facts.source.files]
    if files:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        found.append(Evidence("git", f"the change touches {', '.join(files[:5])}{more}"))
    return found


def _changed_code(facts: Facts) -> list[Evidence]:
    """Return the changed code that ran, best first."""
    return [
        Evidence("code", sentence(place), path=place.name, line=place.line)
        for place in facts.report.places.code[:SHOWN]
    ]


def _alerts(facts: Facts) -> Iterator[Evidence]:
    """Yield the alerts of types that the baseline did not raise, one per type."""
    known = {alert.get("type") for record in facts.baseline for alert in record.alerts}
    for record in facts.current:
        for alert in record.alerts:
            if alert.get("type") not in known:
                known.add(alert.get("type"))
                words = f"{alert.get('type')} at step {alert.get('step')}: {alert.get('message')}"
                yield Evidence("signal", words)


def _unknown(facts: Facts, confidence: float, words: str) -> Suspect:
    """Return the suspect of no mechanism, with known faults of changed packages and the user's
    changed functions: the cause may be in one."""
    return Suspect(
        UNKNOWN,
        round(min(1.0, confidence), 3),
        _sentence(words),
        (*known_faults(facts), *_changed_code(facts)),
        OF_LEARNING if facts.entry else OF_SPEED,
    )


OF_LEARNING = (
    "undo half of the change and compare again: exact signals need one run",
    "compute what differs first by hand on both sides",
)
OF_SPEED = (
    "canary profile CURRENT --against BASELINE compares the operators",
    "canary ab --pairs 8 distinguishes a slower step from a noisy machine",
)
