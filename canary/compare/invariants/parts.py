"""What the invariants share: their result, and the facts of a record that they ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.report import Check
from canary.config.trainers import TRAINERS, TrainerRow, trainer_row
from canary.record.exact import Micro
from canary.record.types import RunRecord

LOSSES = ("compute_loss", "_compute_loss", "dpo_loss", "kto_loss", "get_batch_loss_metrics")
"""Methods of trl's and transformers' trainers that make the loss."""
FIRST_LOSSES = {
    f"{name}_first_loss": name for name, row in TRAINERS.items() if row.first_loss is not None
}
"""The checks of a first loss whose value is known, and the trainer of each."""


@dataclass(frozen=True)
class Invariant(Check):
    """The check of one record's invariant, before it is held against the baseline's."""

    items: frozenset[str] = frozenset()
    """What is broken, by name, where it has names; `delta` is its size where it has none."""
    doubt: str = ""
    """What in the data speaks against its being broken at all: alone, it is no failure."""
    guessed: bool = False
    """Rests on a guess: it is judged only against a baseline that keeps it."""


def skip(name: str, reason: str) -> Invariant:
    """A check that does not apply, with the reason."""
    return Invariant(name, "correctness", "invariant", "skip", reason)


def not_for(name: str, whom: str) -> Invariant:
    """A check of other trainings than this one: of `whom`."""
    return replace(skip(name, f"for {whom}"), unjudged="inapplicable")


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
    """An invariant that holds, or is broken."""
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
    """The config's `trainer_args`."""
    return record.config.get("trainer_args") or {}


def argument(record: RunRecord, name: str, default: Any) -> Any:
    """One of the config's `trainer_args`."""
    return arguments(record).get(name, default)


def whole_number(record: RunRecord, key: str) -> int:
    """A number of the config; 0 where it is none, as a stranger's may be anything."""
    value = record.config.get(key)
    return value if isinstance(value, int) else 0


def trainer_of(record: RunRecord) -> TrainerRow:
    """What is known of the trainer that made a record."""
    return trainer_row(record.config.get("training_type"))


def own_loss(record: RunRecord) -> str:
    """Doubt in what the trainer's class says of its loss; empty where nothing gives rise to it."""
    code = record.exact.get("evidence", {}).get("code", {})
    own = next((slot for slot in code if slot.removeprefix("trainer.") in LOSSES), None)
    return f"the trainer has its own {own.removeprefix('trainer.')}" if own else ""


def starts_at_reference(record: RunRecord) -> bool:
    """Whether policy and reference are equal before training."""
    model = record.exact.get("model", {})
    reference = model.get("reference_sha256")
    if reference is None:
        return bool(record.config.get("use_peft"))
    policy = model.get("policy_sha256") or model.get("parameters_sha256")
    return reference == policy


def special(record: RunRecord, name: str) -> int | None:
    """Id of a special token (bos, eos, pad); None where there is none."""
    tokens = record.exact.get("data", {}).get("tokenizer", {}).get("special_tokens", {})
    return tokens.get(f"{name}_token", {}).get("id")


def micro_batches(record: RunRecord) -> list[Micro]:
    """Every micro-batch of the probe, in order."""
    return [micro for step in record.exact.get("batches", []) for micro in step]
