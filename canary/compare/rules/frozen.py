"""What is frozen stays as it is."""

from __future__ import annotations

from canary.compare.rules.facts import argument
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.exact import TORCH_LOOP
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """Frozen parameters and the reference model never change."""
    frozen = record.exact.get("frozen")
    if not frozen:
        return not_asked("frozen parameters were not recorded")
    if argument(record, "sync_ref_model", False):
        return not_asked("sync_ref_model updates the reference model on purpose")
    moved = list(frozen.get("changed", []))
    if frozen.get("reference_changed"):
        moved.append("the reference model")
    words = f"{frozen.get('tensors', 0)} frozen tensors and the reference model are unchanged"
    if moved:
        words = f"changed although frozen: {', '.join(moved[:3])}"
    elif not frozen.get("tensors") and frozen.get("reference_changed") is None:
        return only_for("trainings with frozen parameters")
    # The optimizers of a loop hold none of these. The loop writes them itself, or shares them.
    own = record.config.get("trainer") == TORCH_LOOP and not frozen.get("reference_changed")
    doubt = "does the loop write them on purpose, as a moving average of trained ones?"
    return answer(bool(moved), words, size=len(moved), items=moved, doubt=doubt if own else "")


RULE = Rule(
    "frozen_unchanged",
    "frozen parameters do not change",
    "nothing updates the reference on purpose",
    "look for code that writes into parameters, and for a reference that shares them with the "
    "policy",
    "https://github.com/huggingface/trl/issues/1534",
    judge,
)
