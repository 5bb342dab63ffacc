"""Order the rows that hold: worst effects first, exact evidence before timed, then strength."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Literal, get_args

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Finding, Row, evidence_of
from canary.compare.diagnosis.suspects import Evidence, EvidenceKind, Suspect
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.stages import STAGE_OF
from canary.compare.place_words import SHOWN, sentence, where
from canary.compare.places import OF_STAGE as PHASES_OF_STAGE
from canary.compare.report import Check, CheckStatus, Group
from canary.compare.stability import new_alerts
from canary.record.phases import PHASES

Effect = Literal["learned", "cost", "memory"]

# fmt: off
OF_GROUP: Mapping[Group, Effect] = {
    "correctness": "learned", "stability": "learned", "performance": "cost", "memory": "memory",
}
OF_STAGE: Mapping[str, C] = {
    "data": C.DATA, "batches": C.DATA, "model": C.ADAPTER, "rollout": C.ROLLOUT,
    "first_loss": C.OBJECTIVE, "first_gradient": C.OBJECTIVE, "first_update": C.OPTIMIZER,
    "trajectory": C.OPTIMIZER,
}
"""Kinds of the stage where the first difference is."""
OF_PHASE: Mapping[str, C] = {
    "data": C.DATA, "generation": C.ROLLOUT, "reward": C.ROLLOUT, "advantage": C.OBJECTIVE,
    "forward": C.OBJECTIVE, "loss": C.OBJECTIVE, "optimizer": C.OPTIMIZER,
}
"""Kinds of the phase in which changed code ran; it says more than the stage."""
# fmt: on
LOUD: tuple[CheckStatus, ...] = ("fail", "changed", "warn")
"""Statuses that need an explanation, the worst first."""
ORDER: tuple[EvidenceKind, ...] = get_args(EvidenceKind)
NAMED = 0.5
"""A weaker row is no answer: the place is, or the cause is unknown."""
MOST = 0.97
UNRECORDED_STRENGTH = 0.4
"""Largest strength of a row that takes unrecorded stages for equal."""
BESIDE_LEARNING = 0.4
"""Factor of a count that a change of learning brings along: a longer row calls more operators."""
BROUGHT_ALONG = (
    *("operators", "operators_of_data", "forwards", "tokenizer_calls", "dataset_maps"),
    *("collectives", "tokens_fed", "files_written", "live_memory", "max_memory"),
)
COMPUTE = ("forward", "backward", "optimizer", "generation", "logprob")
"""Phases whose time is spent in operators, on the device or on a CPU."""
PYTHON = ("data", "reward", "logging", "checkpoint", "advantage", "other")
"""Phases that also run the user's code."""
FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "tokenizer_calls": PYTHON,
    "dataset_maps": ("files_written",),
    "files_written": (*PYTHON, "waiting"),
    "collectives": ("operators", "ranks_wait", *COMPUTE, "other", "waiting"),
    "ranks_wait": (*COMPUTE, "other", "waiting"),
    "tokens_fed": ("operators", "generation", "logprob", "max_memory"),
    "forwards": ("tokens_fed", *COMPUTE, "reward", "other", "max_memory", "ranks_wait"),
    "operators": (*COMPUTE, "reward", "advantage", "logging", "other", "max_memory", "ranks_wait"),
    "input_tokens": (*COMPUTE, "data", "operators", "max_memory", "ranks_wait"),
    "trained_parameters": ("backward", "optimizer", "live_memory", "max_memory"),
    "dtypes": (*COMPUTE, "operators", "live_memory", "max_memory"),
    "live_tensors": ("live_memory", "max_memory", "other"),
    "live_memory": ("max_memory",),
    "gil_contention": (*COMPUTE, *PYTHON, "ranks_wait"),
    # A collator computes too, if no phase of the model grew. A wait for a batch or a file needs no
    # core. So the delay for a core falls on the computing phases, where it counts as "waiting".
    "data": ("ranks_wait", "operators_of_data", "waiting"),
    "checkpoint": ("ranks_wait", "waiting"),
    "logging": ("ranks_wait", "waiting"),
    "reward": ("ranks_wait",),
}
"""Sign of a cause: signs of its effects, so that a collator that calls the tokenizer is not also a
slow data phase. Counts are named by their check, times by their phase, shares by their field."""
MODEL = ("forward", "backward", "logprob")
SLOWS: Mapping[C, tuple[str, ...]] = {
    C.OPTIMIZER: ("optimizer",),
    C.OBJECTIVE: (*MODEL, "advantage"),
    C.ADAPTER: (*MODEL, "optimizer", "generation"),
    C.NUMERICS: (*MODEL, "optimizer", "generation", "reward"),
    C.KERNEL: (*MODEL, "optimizer", "generation", "reward", "advantage", "other"),
    C.ROLLOUT: (*MODEL, "generation", "reward", "advantage"),
    C.DATALOADER: ("data",),
    C.IO: ("checkpoint", "evaluation", "logging", "data", "other"),
    C.COMMUNICATION: ("backward", "forward", "optimizer", "other"),
}
"""Phases that a setting or a change of learning can slow, so that a schedule explains no slow step;
all if not listed."""
MAIN = 0.2
"""A phase with a smaller share of the unexpected time did not slow the step."""
OF_LEARNING = (
    "undo half of the change and compare again: exact signals need one run",
    "compute what differs first by hand on both sides",
)
OF_SPEED = (
    "canary profile CURRENT --against BASELINE compares the operators",
    "canary ab --pairs 8 distinguishes a slower step from a noisy machine",
)


def ranked(rows: Iterable[Row], facts: Facts) -> tuple[Suspect, ...]:
    """Return the suspects, one per category: those of explained effects first, of these the worst.

    An effect that nothing explains is `unknown`, or the kind of the place where it begins.
    """
    findings = heads([_as_seen(finding, facts) for finding in _held(rows, facts)])
    if not (worst := effects(facts)):
        return tuple(_of_one_effect(findings, facts, None))
    listed = {effect: _of_one_effect(findings, facts, effect) for effect in worst}

    def order(effect: Effect) -> tuple[bool, int, bool]:
        unexplained = listed[effect][0].category is C.UNKNOWN
        return unexplained, worst[effect], not shown_exactly(effect, facts)

    named: dict[C, Suspect] = {}
    for effect in sorted(listed, key=order):
        for suspect in listed[effect]:
            if suspect.category is not C.UNKNOWN or not named or worst[effect] == 0:
                named.setdefault(suspect.category, suspect)
    return tuple(named.values())


def _held(rows: Iterable[Row], facts: Facts) -> Iterator[Finding]:
    """Yield the rows that hold, of a group only the first. Where other work on the machine explains
    the times, a slower phase says nothing."""
    spoken: set[str] = set()
    crowded = any(check.unjudged == "crowded" for check in facts.report.checks)
    for row in rows:
        finding = None if row.group in spoken else row.found(facts)
        if finding is not None:
            spoken |= {row.group} - {""}
            if not (crowded and is_timed(finding)) or speed_failed(facts):
                yield finding


def _as_seen(finding: Finding, facts: Facts) -> Finding:
    """Return the finding. It is weaker if it takes an unrecorded stage for equal, or if what
    differs first brings it along."""
    if facts.entry is not None and finding.sign in BROUGHT_ALONG:
        return replace(finding, strength=BESIDE_LEARNING * finding.strength)
    if not (missing := facts.unrecorded(finding.equal)):
        return finding
    entry = STAGE_OF.get(facts.entry or "")
    first = f"{entry.words} {entry.verb}. " if entry else ""
    strength = min(finding.strength, UNRECORDED_STRENGTH)
    words = f"{first}Not recorded on both sides: {', '.join(missing)}"
    return replace(finding, strength=strength, description=words)


def heads(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that follow from no other, with the evidence of those that do."""
    evidence: dict[int, tuple[Evidence, ...]] = {}
    for place, finding in enumerate(findings):
        head = place
        while (cause := _cause_of(findings, head)) is not None:
            head = cause
        evidence[head] = (*evidence.get(head, ()), *finding.evidence)
    return [replace(findings[head], evidence=told) for head, told in sorted(evidence.items())]


def _cause_of(findings: Sequence[Finding], effect: int) -> int | None:
    """Return the strongest finding of another category from which this one follows."""
    one = findings[effect]
    causes = [
        place
        for place, other in enumerate(findings)
        if other.category is not one.category and one.sign in FOLLOWS.get(other.sign, ())
    ]
    return max(causes, key=lambda place: findings[place].strength, default=None)


def effects(facts: Facts) -> dict[Effect, int]:
    """Return what is to be explained, with its severity: 0 is the worst."""
    loud = [check for check in facts.report.checks if check.status in LOUD]
    loud.sort(key=lambda check: -LOUD.index(check.status))
    return {OF_GROUP[check.group]: LOUD.index(check.status) for check in loud}


def shown_exactly(effect: Effect, facts: Facts) -> bool:
    """Return whether an exact signal shows the effect, and not only times, peaks and trends."""
    return any(check.lane in ("exact", "rule") for check in _failed(effect, facts))


def speed_failed(facts: Facts) -> bool:
    """Return whether a check with noise found the step slower."""
    failed = _failed("cost", facts)
    return any(check.status == "fail" and check.lane != "exact" for check in failed)


def _failed(effect: Effect, facts: Facts) -> list[Check]:
    return [check for check in facts.report.failed_checks if OF_GROUP[check.group] == effect]


def is_timed(finding: Finding) -> bool:
    """Return whether it rests on noisy times alone."""
    return finding.category is C.HOST or finding.sign in PHASES


def can_cause(finding: Finding, effect: Effect | None, facts: Facts) -> bool:
    """Return whether the finding can cause the effect; None if nothing is known to be worse."""
    if effect == "cost":
        return bool(finding.sign) or can_slow(finding.category, facts)
    if effect == "memory":
        return not is_timed(finding)
    work = finding.sign in (*BROUGHT_ALONG, "live_tensors", "ranks_wait") or is_timed(finding)
    return effect is None or not (work or finding.category in (C.IO, C.MEMORY))


def can_slow(category: C, facts: Facts) -> bool:
    """Return whether the mechanism can slow a phase that grew; all can if no step is slower.

    If no phase grew, it must be able to slow more than one phase.
    """
    if facts.slower is None or category not in SLOWS:
        return True
    grown = {
        phase.phase
        for phase in (facts.phases.grown if facts.phases else ())
        if phase.share >= MAIN or phase.stands_out_in_cpu
    }
    return bool(grown.intersection(SLOWS[category])) if grown else category is not C.OPTIMIZER


def _of_one_effect(
    findings: Iterable[Finding], facts: Facts, effect: Effect | None
) -> list[Suspect]:
    """Return the suspects of one effect, the strongest first. Where a count failed and no time did,
    those that rest on times alone come last."""
    able: dict[C, list[Finding]] = {}
    for finding in findings:
        if can_cause(finding, effect, facts):
            able.setdefault(finding.category, []).append(finding)
    counted = effect is not None and shown_exactly(effect, facts) and not speed_failed(facts)
    # Reasons for one category add up.
    sure = {
        category: min(MOST, 1.0 - prod(1.0 - finding.strength for finding in found))
        for category, found in able.items()
    }
    order = sorted(able, key=lambda one: (counted and all(map(is_timed, able[one])), -sure[one]))
    best = sure[order[0]] if order else 0.0
    # Of two causes of one effect, the second is right at most as often as the first is wrong.
    suspects = [_suspect(one, min(sure[one], 1 - best), able[one], facts) for one in order]
    if best >= NAMED:
        return [replace(suspects[0], confidence=round(best, 3)), *suspects[1:]]
    if effect != "cost" and facts.entry in OF_STAGE and facts.report.places.code:
        placed = _of_place(facts, able)
        return [placed, *(one for one in suspects if one.category is not placed.category)]
    return [_unknown(facts, 1 - best, bool(suspects)), *suspects]


def _suspect(category: C, confidence: float, findings: Sequence[Finding], facts: Facts) -> Suspect:
    """Return a suspect with the evidence of its findings, and with whatever else differs."""
    ordered = sorted(findings, key=lambda finding: -finding.strength)
    evidence = [item for finding in ordered for item in finding.evidence]
    if facts.entry is not None and not any(finding.sign for finding in findings):
        inner = (d for d in facts.report.differences if d.stage not in ("environment", "config"))
        evidence += evidence_of(next(inner, None))
    evidence += _other_changes(facts)
    unique = list({item.message: item for item in evidence}.values())
    # The first advice of each row comes before the second of any.
    advice = zip_longest(*(finding.actions for finding in ordered))
    actions = dict.fromkeys(action for several in advice for action in several if action)
    words = ordered[0].description
    return Suspect(
        category,
        round(confidence, 3),
        words[:1].upper() + words[1:] + ("" if words.endswith((".", "?")) else "."),
        tuple(sorted(unique, key=lambda item: ORDER.index(item.kind))),
        tuple(actions)[:4],
    )


def _other_changes(facts: Facts) -> Iterator[Evidence]:
    """Yield what else differs; it is listed with every suspect and makes none likelier."""
    yield from _changed_code(facts)
    yield from evidence_of([c for c in facts.report.environment_changes if not c.cosmetic][:4])
    yield from [change.evidence() for change in facts.settings if change.in_config][:4]
    for alert in new_alerts(facts.current, facts.baseline)[:3]:
        yield Evidence("signal", f"{alert.type} at step {alert.step}: {alert.message}")
    if files := [file.path for file in facts.source.files]:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        yield Evidence("git", f"the change touches {', '.join(files[:5])}{more}")


def _changed_code(facts: Facts) -> list[Evidence]:
    """Return the changed code that ran, best first."""
    return [
        Evidence("code", sentence(place), path=place.name, line=place.line)
        for place in facts.report.places.code[:SHOWN]
    ]


def _of_place(facts: Facts, weak: Mapping[C, Sequence[Finding]]) -> Suspect:
    """Return the suspect of the stage or the phase where the first difference is: some code
    changed there, and no row names a mechanism."""
    place, stage = facts.report.places.code[0], facts.entry or ""
    category = OF_STAGE[stage]
    if stage in ("batches", "first_loss", "first_gradient", "trajectory"):
        fits = place.phase in PHASES_OF_STAGE[stage]
        category = OF_PHASE.get(place.phase, category) if fits else category
    entry = STAGE_OF[stage]
    words = f"{entry.words} {entry.verb} first, and code that ran before changed: {where(place)}"
    actions = (f"undo {where(place)}, or accept the change", OF_LEARNING[1])
    finding = Finding(category, NAMED, words, (), actions)
    return _suspect(category, NAMED, [finding, *weak.get(category, ())], facts)


def _unknown(facts: Facts, confidence: float, weak: bool) -> Suspect:
    """Return the suspect of no mechanism."""
    words = (
        "The evidence is too weak to name a cause." if weak else "No recorded signal explains it."
    )
    evidence = tuple(_changed_code(facts))
    actions = OF_LEARNING if facts.entry else OF_SPEED
    return Suspect(C.UNKNOWN, round(confidence, 3), words, evidence, actions)
