"""Settings, packages and the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from canary.compare.commands import setting_name
from canary.compare.diagnosis.changed_settings import SettingChange, category_of
from canary.compare.diagnosis.engine import can_slow
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Check, KeyChange

SHOWN = 3
"""Settings of one kind that are evidence."""
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
    C.DATALOADER: (None, "batches"),
    **dict.fromkeys((C.KERNEL, C.ENVIRONMENT, C.HOST, C.MEMORY, C.IO, C.COMMUNICATION), (None,)),
}
"""Stages that a setting of this kind can change first; None: it may leave learning unchanged."""


COSTLY = re.compile(
    r"(max|min)_.*(length|tokens)|.*batch_size|gradient_accumulation.*|num_generations|packing.*"
    r"|padding.*|pad_to_multiple_of|optim|use_peft|lora_r|r|target_modules|model_name.*"
)
"""Names of settings that learn otherwise and also change the time and memory of a step."""


def likeliest_first(changes: Sequence[KeyChange], checks: Sequence[Check]) -> tuple[KeyChange, ...]:
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


def _changed(category: C, facts: Facts) -> list[SettingChange]:
    """Return the changed settings of a kind, if something is to be explained; `config` has the keys
    of no kind."""
    if not (_ended(facts) or facts.entry or facts.report.failed_checks or facts.slower):
        return []
    kind = None if category is C.CONFIG else category
    # It only says when a command ends: the steps before are the same.
    ends_a_command = facts.current[-1].config.get("training_type") == "exec"
    return [
        change
        for change in facts.settings
        if change.category is kind
        and (kind is not None or change.in_config)
        and not (facts.entry and ends_a_command and change.in_config and change.key == "max_steps")
    ]


def _ended(facts: Facts) -> bool:
    """Whether a current run ended early."""
    return any(record.status not in ("completed", "running") for record in facts.current)


def _explains(category: C, facts: Facts) -> bool:
    """Return whether changed settings of a kind can cause the first difference or a slower step.

    Another length of the training explains its end, even if all steps of the look are equal.
    """
    first, changes = FIRST_EFFECT.get(category, ()), _changed(category, facts)
    unseen = facts.learning_unexamined and facts.learned_worse and set(first) - {None}
    if not changes or unseen or (_ended(facts) and facts.entry is None):
        return bool(changes)
    if facts.entry is None and facts.learned_worse and {c.name for c in changes} & {*LENGTH}:
        return True
    slows = facts.slower is not None and None in first and can_slow(category, facts)
    return slows or (facts.entry in first and (facts.entry is not None or facts.slower is None))


def _strength(category: C, facts: Facts) -> float:
    """Return more if the settings explain it, and most if nothing else does: no setting of another
    kind and, as the look saw, no code."""
    if category is C.CONFIG:
        return 0.5
    if not _explains(category, facts):
        return 0.15
    others = any(_explains(other, facts) for other in FIRST_EFFECT if other is not category)
    return 0.6 if others or facts.learning_unexamined else 0.9


def _evidence(category: C, facts: Facts) -> list[Evidence]:
    found = []
    for change in _changed(category, facts)[:SHOWN]:
        found.append(change.evidence())
        if (line := facts.source.line_naming(change.name)) is not None:
            path, number, text = line
            words = f"{path}:{number}: {text[:100]}"
            found.append(Evidence("git", words, path=path, line=number))
    return found


def _words(category: C, facts: Facts) -> str:
    changes = _changed(category, facts)
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"setting changed: {changes[0].sentence()}{more}"


def _advice(category: C, facts: Facts) -> tuple[str, ...]:
    """Return the advice to set a key back if the config has it, else to look for what set it."""
    change = _changed(category, facts)[0]
    if change.in_config:
        return (f"set {change.key} back, or accept the change",)
    return (f"look for the code, or the default of a package, that sets {change.name}",)


def _environment(facts: Facts) -> list[KeyChange]:
    changes = [c for c in facts.report.environment_changes if not c.cosmetic]
    worse = facts.entry is not None or facts.slower is not None or facts.report.failed_checks
    return changes[:4] if worse else []


# fmt: off
ROWS = (
    Row(C.ENVIRONMENT, _environment,
        lambda f: f"{', '.join(change.key for change in _environment(f))} changed",
        ("run the baseline in the new environment: a remaining difference comes from the code",),
        lambda f: 0.7 if f.entry is None and f.slower else 0.45),
    *(
        Row(kind, partial(_evidence, kind), partial(_words, kind), partial(_advice, kind),
            partial(_strength, kind))
        for kind in (*FIRST_EFFECT, C.CONFIG)
    ),
)
# fmt: on
