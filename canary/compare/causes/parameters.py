"""What is trained: which parameters, which must not be, and from where they start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from operator import lt

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.changes import named
from canary.compare.report import Difference

TRAINABLE = ("trainable_parameters", "trainable_tensors", "trainable_names_sha256")
BY_NAME = "print the trainable parameters of both sides by name"
ADAPTED = "compare target_modules, modules_to_save and every requires_grad_ of both sides"
BUILT = "compare how both sides build the model, its sizes, and every requires_grad_"
REFERENCE = (
    "compare where policy and reference are loaded from, and their precision",
    "look for a model that is used in two places, and for tied weights",
)
SHOWN = 3
"""Names of parameters in a sentence."""


def _start(facts: Facts) -> Difference | None:
    """Return a difference of parameters that are trained on both sides in one precision."""
    changed = facts.differences("model")
    if facts.entry != "model" or any(d.signal in (*TRAINABLE, "dtypes") for d in changed):
        return None
    return next((d for d in changed if d.signal != "reference_sha256"), None)


def _no_gradient(facts: Facts) -> Difference | None:
    """Return the difference of parameters without a gradient. Without an adapter, a graph that is
    cut leaves parameters of the model so."""
    cut = not facts.now.config.get("use_peft") and facts.gradient_cut
    if cut or facts.entry not in ("first_gradient", "first_loss"):
        return None
    return facts.difference("first_gradient", "tensors_without_gradient")


def _trained(facts: Facts) -> tuple[int, int]:
    return facts.exact(lambda exact: exact.get("model", {}).get("trainable_parameters", 0))


def _trained_words(facts: Facts) -> str:
    """Say which parameters are trained no longer, or newly."""
    was, now = facts.exact(lambda exact: exact.get("model", {}).get("trainable_groups", {}))
    counts = "{:,} -> {:,}".format(*_trained(facts))
    if not _trained(facts)[1] and not now:
        return f"no parameter is trainable, so nothing is trained ({counts})"
    lost, more = [*_fewer(was, now)], [*_fewer(now, was)]
    if not (lost or more):
        return f"the trainable parameters changed: {counts}"
    words = [f"no longer trained: {named(lost, SHOWN)}"] if lost else []
    words += [f"{'Newly' if lost else 'newly'} trained: {named(more, SHOWN)}"] if more else []
    return f"{'. '.join(words)} ({counts} trainable parameters)"


def _fewer(one: Mapping[str, int], other: Mapping[str, int]) -> Iterator[str]:
    """Yield the modules of which the other side trains fewer tensors."""
    for name, count in one.items():
        if missing := max(0, count - other.get(name, 0)):
            shown = name.removeprefix("base_model.model.").removesuffix(".default")
            yield f"{missing} of {count} tensors of {shown}" if missing < count else shown


def _other_reference(facts: Facts) -> Difference | None:
    """Return the difference of two reference models; none if a side has no reference."""
    found = facts.difference("model", "reference_sha256")
    return found if found is not None and found.baseline and found.current else None


def _parts(facts: Facts) -> tuple[str, str]:
    groups = facts.exact(lambda exact: exact.get("model", {}).get("trainable_groups", {}))
    adapted = facts.now.config.get("use_peft") or any(
        "lora" in name for name in {**groups[0], **groups[1]}
    )
    return (ADAPTED if adapted else BUILT, BY_NAME)


_adapter = partial(Row, C.ADAPTER)
# fmt: off
ROWS = (
    _adapter(lambda f: [d for d in f.differences("model") if d.signal in TRAINABLE][:3],
        _trained_words, _parts,
        strength=0.96, sign=lambda f: "trained_parameters" if lt(*_trained(f)) else ""),
    _adapter(lambda f: f.failed("frozen_unchanged"),
        "the reference model or a frozen parameter changes during training", REFERENCE,
        strength=0.95),
    _adapter(lambda f: f.signal("reference_logprobs"),
        "the reference's log-probabilities of the same completions differ, the policy's do not",
        REFERENCE),
    _adapter(lambda f: not f.reference_rounded and _other_reference(f),
        "the reference model has different weights", REFERENCE),
    _adapter(_start, "training starts from different parameters",
        ("compare the checkpoint, its revision and the seed of new weights",
        "look for an adapter that is merged or loaded twice"), strength=0.72),
    _adapter(_no_gradient, "trainable parameters receive no gradient",
        ("look for detach(), no_grad() and modules that the forward pass no longer reaches",)),
)
# fmt: on
