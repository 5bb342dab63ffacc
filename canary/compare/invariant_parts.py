"""What the invariants share: their result, and the facts of a record that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.collect.record import RunRecord
from canary.compare.report import Check


def skip(name: str, reason: str) -> Check:
    """A check that does not apply, with the reason."""
    return Check(name, "correctness", "invariant", "skip", reason)


def result(
    name: str, broken: bool, message: str, delta: float, current: float | int | None = None
) -> Check:
    """An invariant that holds, or is broken."""
    return Check(
        name,
        "correctness",
        "invariant",
        "fail" if broken else "pass",
        message,
        current=current,
        delta=delta,
    )


def argument(record: RunRecord, name: str, default: Any) -> Any:
    """One of the config's `trainer_args`."""
    return (record.config.get("trainer_args") or {}).get(name, default)


def starts_at_reference(record: RunRecord) -> bool:
    """Whether policy and reference are equal before training."""
    model = record.exact.get("model", {})
    reference = model.get("reference_sha256")
    if reference is None:
        return bool(record.config.get("use_peft"))
    policy = model.get("policy_sha256") or model.get("parameters_sha256")
    return bool(reference == policy)


def special(record: RunRecord, name: str) -> int | None:
    """Id of a special token (bos, eos, pad); None where there is none."""
    tokens = record.exact.get("data", {}).get("tokenizer", {}).get("special_tokens", {})
    found = tokens.get(f"{name}_token") or {}
    return found.get("id") if isinstance(found, Mapping) else None


def micro_batches(record: RunRecord) -> list[Mapping[str, Any]]:
    """Every micro-batch of the probe, in order."""
    return [micro for step in record.exact.get("batches", []) for micro in step]
