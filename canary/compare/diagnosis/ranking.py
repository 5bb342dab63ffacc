"""From findings to suspects: one a mechanism, and each lowered by its rivals."""

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
from canary.compare.diagnosis.suspects import Evidence, EvidenceKind, RegressionCategory, Suspect
from canary.compare.exact.stages import STAGE_OF

UNKNOWN = RegressionCategory.UNKNOWN
ORDER: tuple[EvidenceKind, ...] = get_args(EvidenceKind)
SOMETHING_ELSE = 1.0
"""Odds of a cause that nobody thought of: alone, a suspect is as likely as its evidence says."""
MOST = 0.97
LEAST = 0.1
"""A suspect below this is not named."""
ONE_OF_SEVERAL = 0.4
"""Of a cause that rests on what was not recorded: less likely than one that nobody thought of."""
TELLS_APART = 1.05
"""Two mechanisms whose confidences differ by less than this factor are not told apart."""


def ranked(found: Iterable[Finding], facts: Facts) -> tuple[Suspect, ...]:
    """Suspects of the worst effects first, of these those of exact signals, and of these the
    likeliest; rivals are who can cause the same effect. `unknown` stands first where the first two
    are not told apart, or where nothing tells enough for anyone."""
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
    """The suspects of effects that are equally bad, those of exact signals first."""
    asked = {}
    for effect in tier:
        able = [finding for finding in findings if can_cause(finding, effect, facts)]
        counted = is_exact(effect, facts) and not speed_failed(facts)
        asked[effect] = _of_one_effect(able, facts, times_last=counted)
    every = [(effect, suspect) for effect, suspects in asked.items() for suspect in suspects]
    every.sort(key=lambda pair: (not is_exact(pair[0], facts), -pair[1].confidence))
    unknown = [suspects[0] for suspects in asked.values() if suspects[0].category is UNKNOWN]
    known = [suspect for _, suspect in every if suspect.category is not UNKNOWN]
    # Where one of several effects is explained, that is said before what is not.
    return [*unknown, *known] if len(unknown) == len(asked) else [*known, *unknown]


def _noise_alone(
    tiers: Sequence[Sequence[Effect]], listed: Sequence[Sequence[Suspect]], facts: Facts
) -> bool:
    """Whether nobody knows why the worst effects are there, none of them exact, as where a busy
    machine slows the steps, while the exact signals of the next ones have a known cause."""
    if len(tiers) < 2 or any(is_exact(effect, facts) for effect in tiers[0]):
        return False
    told = listed[1][0].category is not UNKNOWN
    return (
        listed[0][0].category is UNKNOWN
        and told
        and any(is_exact(effect, facts) for effect in tiers[1])
    )


def _as_recorded(finding: Finding, facts: Facts) -> Finding:
    """What a side did not record is not called equal: then the cause is one of several."""
    missing = facts.unrecorded(finding.equal)
    if not missing:
        return finding
    entry = STAGE_OF.get(facts.entry or "")
    first = f"{entry.words} {entry.verb}. " if entry else ""
    return replace(
        finding,
        strength=min(finding.strength, ONE_OF_SEVERAL),
        description=f"{first}Not recorded on both sides: {', '.join(missing)}",
    )


def _of_one_effect(
    findings: Iterable[Finding], facts: Facts, *, times_last: bool = False
) -> tuple[Suspect, ...]:
    """`times_last`: where a count failed and no time did, what rests on times alone explains it
    worst."""
    by_category: dict[RegressionCategory, list[Finding]] = {}
    for finding in findings:
        by_category.setdefault(finding.category, []).append(finding)
    odds = {category: _odds(findings) for category, findings in by_category.items()}
    total = sum(odds.values()) + SOMETHING_ELSE
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
        return (_unknown(SOMETHING_ELSE / total, "nothing that was recorded tells why"),)
    if named[0].confidence < _nobody(total):
        return (_unknown(_nobody(total), "the evidence is too weak to name a cause"), *named)
    rival = next((s for s in named[1:] if last[s.category] == last[named[0].category]), None)
    if rival is not None and named[0].confidence < TELLS_APART * rival.confidence:
        rivals = f"{named[0].category} or {rival.category}"
        both = named[0].confidence + rival.confidence
        words = f"{rivals}: nothing that was recorded tells them apart"
        return (_unknown(both / 2, words), *named)
    return tuple(named)


def _nobody(total: float) -> float:
    return SOMETHING_ELSE / total


def _odds(findings: Sequence[Finding]) -> float:
    """Reasons for one mechanism add up, as long as they do not rest on each other."""
    left = 1.0
    for finding in findings:
        left *= 1.0 - finding.strength
    strength = min(MOST, 1.0 - left)
    return strength / (1.0 - strength)


def _suspect(
    category: RegressionCategory, confidence: float, findings: Sequence[Finding], facts: Facts
) -> Suspect:
    ordered = sorted(findings, key=lambda finding: -finding.strength)
    evidence = [item for finding in ordered for item in finding.evidence]
    evidence += _surroundings(facts)
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


def _surroundings(facts: Facts) -> list[Evidence]:
    """What else differs: it stands beside every suspect, and makes none of them likelier."""
    changes = [c for c in facts.report.environment_changes if not c.cosmetic]
    found = list(environment_evidence(changes))
    found += [change.evidence() for change in facts.settings if change.in_config][:4]
    found += [change.evidence() for change in facts.code][:3]
    found += list(_alerts(facts))[:3]
    files = [file.path for file in facts.source.files]
    if files:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        found.append(Evidence("git", f"the change touches {', '.join(files[:5])}{more}"))
    return found


def _alerts(facts: Facts) -> Iterator[Evidence]:
    """What was raised while the current side ran, and not on the baseline; a type once."""
    known = {alert.get("type") for record in facts.baseline for alert in record.alerts}
    for record in facts.current:
        for alert in record.alerts:
            if alert.get("type") not in known:
                known.add(alert.get("type"))
                words = f"{alert.get('type')} at step {alert.get('step')}: {alert.get('message')}"
                yield Evidence("signal", words)


def _unknown(confidence: float, words: str) -> Suspect:
    return Suspect(
        UNKNOWN,
        round(min(1.0, confidence), 3),
        _sentence(words),
        (),
        (
            "canary profile CURRENT --against BASELINE compares the operators",
            "canary ab --pairs 8 tells a slower step from a noisy machine",
        ),
    )
