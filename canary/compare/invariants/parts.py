"""Shared by the invariants: their result, facts of a record, comparison with the baseline's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from canary.compare.report import Check, CheckStatus
from canary.config.trainers import TRAINERS, TrainerRow, trainer_row
from canary.record.exact import Micro
from canary.record.types import RunRecord

FIRST_LOSSES = {
    f"{name}_first_loss": name for name, row in TRAINERS.items() if row.first_loss is not None
}
"""The checks of a known first loss, and their trainers."""


@dataclass(frozen=True)
class Invariant(Check):
    """An invariant of one record, before the comparison with the baseline's."""

    items: frozenset[str] = frozenset()
    """Names of what is broken; without names, `delta` is its size."""
    doubt: str = ""
    """A reason to think that nothing is broken: without a baseline it only warns."""
    guessed: bool = False
    """Based on a guess: it fails only if the baseline passes."""


def skip(name: str, reason: str) -> Invariant:
    """Make a skipped check with its reason."""
    return Invariant(name, "correctness", "invariant", "skip", reason)


def not_for(name: str, others: str) -> Invariant:
    """Make a skipped check that applies only to other trainings, such as `online RL`."""
    return replace(skip(name, f"only for {others}"), unjudged="inapplicable")


def result(
    name: str,
    broken: bool,
    message: str,
    delta: float,
    current: float | int | None = None,
    *,
    items: Iterable[str] = (),
    doubt: str = "",
) -> Invariant:
    """Make a check that passes, or fails if `broken`."""
    return Invariant(
        name,
        "correctness",
        "invariant",
        "fail" if broken else "pass",
        message,
        current=current,
        delta=delta,
        items=frozenset(items),
        doubt=doubt,
    )


def arguments(record: RunRecord) -> Mapping[str, Any]:
    """Return the config's `trainer_args`."""
    return record.config.get("trainer_args") or {}


def argument(record: RunRecord, name: str, default: Any) -> Any:
    """Return one of the config's `trainer_args`."""
    return arguments(record).get(name, default)


def whole_number(record: RunRecord, key: str) -> int:
    """Return a number of the config; 0 if it is not one, since a record can hold anything."""
    value = record.config.get(key)
    return value if isinstance(value, int) else 0


def trainer_of(record: RunRecord) -> TrainerRow:
    """Return the facts of the record's trainer."""
    return trainer_row(record.config.get("training_type"))


def overridden_loss(record: RunRecord) -> str:
    """Return a doubt about the loss if the user's trainer overrides it; otherwise empty."""
    method = record.exact.get("evidence", {}).get("own_loss")
    return f"the trainer overrides {method}" if method else ""


def starts_at_reference(record: RunRecord) -> bool:
    """Whether policy and reference model are equal before training."""
    model = record.exact.get("model", {})
    reference = model.get("reference_sha256")
    if reference is None:
        return bool(record.config.get("use_peft"))
    policy = model.get("policy_sha256") or model.get("parameters_sha256")
    return reference == policy


def special(record: RunRecord, name: str) -> int | None:
    """Return the id of a special token (bos, eos, pad, mask), or None."""
    tokens = record.exact.get("data", {}).get("tokenizer", {}).get("special_tokens", {})
    return tokens.get(f"{name}_token", {}).get("id")


def micro_batches(record: RunRecord) -> list[Micro]:
    """Return all micro-batches of the look, in order."""
    return [micro for step in record.exact.get("batches", []) for micro in step]


SAME_SIZE = 0.01
"""Two broken invariants whose sizes differ by at most this share count as equal."""
BOTH = "(the same on the baseline)"


def of_the_side(current: Sequence[Invariant], before: Invariant | None) -> Check:
    """Return the check of a side with at least one record: the first that fails, else the first
    that warns, else the last. `before` is the baseline's invariant."""
    judged = [(_status(found, before), found) for found in current]
    status, found = next(
        (one for wanted in ("fail", "warn") for one in judged if one[0] == wanted), judged[-1]
    )
    return _plain(found, status, _message(found, status, before))


def _status(found: Invariant, before: Invariant | None) -> CheckStatus:
    if found.status != "fail":
        return found.status
    if found.guessed:
        return "fail" if before is not None and before.status == "pass" else "skip"
    if before is not None and _same(found, before):
        return "warn"
    judged = before is not None and before.status in ("pass", "fail")
    return "warn" if found.doubt and not judged else "fail"


def _same(found: Invariant, before: Invariant) -> bool:
    """Whether the baseline breaks the same items, by as much and in the same direction."""
    if before.status != "fail":
        return False
    if found.items or before.items:
        return found.items <= before.items
    now, was = found.delta or 0.0, before.delta or 0.0
    if math.isnan(now) or math.isnan(was):
        return math.isnan(now) and math.isnan(was)
    return now * was >= 0 and abs(now) <= (1 + SAME_SIZE) * abs(was)


def _message(found: Invariant, status: CheckStatus, before: Invariant | None) -> str:
    if found.status != "fail":
        return found.message
    if status == "skip":
        return f"{found.message}; {found.doubt}"
    if before is not None and _same(found, before):
        return f"{found.message} {BOTH}"
    if status == "warn":
        return f"{found.message}; {found.doubt}"
    more = sorted(found.items - before.items) if before is not None else []
    if before is None or before.status != "fail" or not more:
        return found.message
    return f"{found.message}; not on the baseline: {', '.join(more[:3])}"


def _plain(found: Invariant, status: CheckStatus, message: str) -> Check:
    values = {field.name: getattr(found, field.name) for field in fields(Check)}
    return Check(**values | {"status": status, "message": message})
