"""Settings: a config key or an active value that explains a later difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from canary.compare.commands import setting_name
from canary.compare.diagnosis.changed_settings import SettingChange, category_of
from canary.compare.diagnosis.effects import can_slow
from canary.compare.diagnosis.evidence import Finding
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.recorded_stages import LEARNED_STAGES
from canary.compare.report import Check, KeyChange

UNEXAMINED = 0.6
"""Largest strength without exact signals: the code may have changed too, and nobody looked."""
LENGTH = ("max_steps", "num_train_epochs")
"""Settings of how long is trained."""
FIRST_EFFECT: dict[C, tuple[str | None, ...]] = {
    C.TOKENIZATION: ("data", "batches"),
    C.DATA: ("data", "batches"),
    C.ADAPTER: ("model", "rollout", "first_loss", "first_gradient", "first_update", "trajectory"),
    # Another precision has a wider tolerance, so all stages may seem equal.
    C.NUMERICS: ("model", "rollout", "first_loss", "first_gradient", "first_update", None),
    C.OBJECTIVE: ("rollout", "first_loss", "first_gradient", "trajectory"),
    C.ROLLOUT: ("batches", "rollout", "first_loss", "first_gradient", "trajectory", None),
    C.OPTIMIZER: ("first_update", "trajectory"),
    C.KERNEL: (None,),
    C.ENVIRONMENT: (None,),
    C.HOST: (None,),
    C.MEMORY: (None,),
    C.IO: (None,),
    C.DATALOADER: (None, "batches"),
    C.COMMUNICATION: (None,),
}
"""Stages that a setting of this kind can change first; None: it may leave learning unchanged."""


COSTLY = re.compile(
    r"(max|min)_.*(length|tokens)|.*batch_size|gradient_accumulation.*|num_generations|packing.*"
    r"|padding.*|pad_to_multiple_of|optim|use_peft|lora_r|r|target_modules|model_name.*"
)
"""Names of settings that learn otherwise and also change the time and memory of a step."""


def effect_first(changes: Sequence[KeyChange], checks: Sequence[Check]) -> tuple[KeyChange, ...]:
    """Return changed keys, those first that can cause what the checks found: a step that costs
    more, else the first stage of learning that differs."""
    loud = [check for check in checks if check.status == "fail"]
    loud = loud or [check for check in checks if check.failed]
    costs = any(check.group in ("memory", "performance") for check in loud)
    stage = None if costs else next((c.name for c in loud if c.name in LEARNED_STAGES), None)

    def acts(change: KeyChange) -> bool:
        name = setting_name(change.key)
        stages = FIRST_EFFECT.get(category_of(name) or C.CONFIG, ())
        return stage in stages or (costs and COSTLY.fullmatch(name) is not None)

    return tuple(sorted(changes, key=lambda change: not acts(change)))


def findings(facts: Facts) -> Iterator[Finding]:
    """One finding per mechanism with changed settings, and one for keys of unknown effect."""
    ended = any(record.status not in ("completed", "running") for record in facts.current)
    if not (facts.entry or facts.report.failed_checks or facts.slower or ended):
        return
    by_category: dict[C | None, list[SettingChange]] = {}
    for change in facts.settings:
        by_category.setdefault(change.category, []).append(change)
    for category, changes in by_category.items():
        if category is None:
            continue
        fits = _explains(category, changes, facts) or (ended and facts.entry is None)
        rivals = sum(_explains(c, by_category[c], facts) for c in by_category if c is not None)
        strength = 0.15 if not fits else (0.9 if rivals == 1 else 0.6)
        if facts.learning_unexamined:
            strength = min(strength, UNEXAMINED)
        yield Finding(
            category,
            strength,
            f"setting changed: {changes[0].sentence()}"
            + (f" and {len(changes) - 1} more" * (len(changes) > 1)),
            tuple(evidence for c in changes[:3] for evidence in _evidence(facts, c)),
            (f"set {changes[0].name} back, or accept the change",),
        )
    named = [c for c in by_category.get(None, []) if c.in_config]
    if named:
        yield Finding(
            C.CONFIG,
            0.5,
            f"setting changed: {named[0].sentence()}",
            tuple(evidence for c in named[:3] for evidence in _evidence(facts, c)),
            (f"set {named[0].key} back, or accept the change",),
        )


def _explains(category: C, changes: Sequence[SettingChange], facts: Facts) -> bool:
    """Return whether changed settings of a kind can cause what was found. Another length of the
    training explains its end, even if all steps of the look are equal."""
    other_length = any(change.name in LENGTH for change in changes)
    ends_otherwise = facts.entry is None and facts.learned_worse
    return _fits(category, facts) or (other_length and ends_otherwise)


def _fits(category: C, facts: Facts) -> bool:
    """Return whether a setting of this kind can cause the first difference or a slower step."""
    first = FIRST_EFFECT.get(category, ())
    if facts.learning_unexamined and facts.learned_worse and set(first) - {None}:
        return True
    slows = facts.slower is not None and None in first and can_slow(category, facts)
    return slows or (facts.entry in first and (facts.entry is not None or facts.slower is None))


def _evidence(facts: Facts, change: SettingChange) -> Iterator[Evidence]:
    yield change.evidence()
    line = facts.source.line_naming(change.name)
    if line is not None:
        path, number, text = line
        yield Evidence("git", f"{path}:{number}: {text[:100]}", path=path, line=number)
