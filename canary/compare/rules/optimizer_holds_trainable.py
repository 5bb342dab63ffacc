"""The optimizer holds what trains."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, any_gradient, counted, shown, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.facts import Holding
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """Every trainable tensor that gets a gradient is in an optimizer.

    What is left out on purpose is frozen: it takes no gradient.
    """
    if record.exact.get("model", {}).get("trainable_parameters") == 0:
        return not_asked("no parameter is trainable")
    seen = updates_of(record)
    if not seen or "holding" not in seen:
        return not_asked(NO_UPDATES)
    holding, optimizers = seen["holding"], seen.get("optimizers", [])
    if not holding.get("tensors"):
        return answer(True, "the optimizer is empty: nothing is trained")
    if not any_gradient(seen):
        updates = counted(max((one["updates"] for one in optimizers), default=0), "update")
        words = f"no tensor of the optimizer had a gradient in {updates}"
        doubt = "" if _unchanged(record) else "other code may update the parameters"
        return answer(True, words, doubt=doubt)
    if not holding.get("trainable_held"):
        return not_asked("the optimizer holds other tensors than the model, such as copies")
    return _missing(holding)


def _unchanged(record: RunRecord) -> bool:
    """Whether no parameter changed in the whole look."""
    final = record.exact.get("frozen", {}).get("final_parameters_sha256")
    first = record.exact.get("model", {}).get("parameters_sha256")
    return final is not None and final == first


def _missing(holding: Holding) -> Answer:
    thawed, missing = holding.get("thawed", 0), holding.get("missing", 0)
    if thawed:
        names = holding.get("thawed_names", [])
        words = f"{counted(thawed, 'tensor')} thawed in the training but in no optimizer"
        what = f"{words} ({shown(names, thawed)})"
        return answer(True, what, size=thawed, items=names, place=shown(names, 1))
    names = holding.get("missing_names", [])
    held = f"the optimizer holds {holding['trainable_held']} of {holding['trainable']}"
    if not missing:
        return answer(False, f"{held} trainable tensors, all that get a gradient")
    return answer(
        True,
        f"{held} trainable tensors; others get a gradient and never change "
        f"({shown(names, missing)})",
        size=missing,
        items=names,
        place=shown(names, 1),
    )


RULE = Rule(
    "optimizer_holds_trainable",
    "the optimizer holds every trainable tensor that gets a gradient",
    "one rank, and an optimizer that holds the model's own tensors",
    "make the optimizer from all trainable tensors, after the last of them was made or thawed; "
    "freeze what is not to train",
    "https://github.com/huggingface/trl/issues/6700",
    judge,
)
