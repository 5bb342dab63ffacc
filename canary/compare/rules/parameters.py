"""Parameters: which the optimizer holds, which updates change, and what else writes them."""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import NO_UPDATES, any_gradient, argument, shown, updates_of, warned
from canary.compare.rules.rule import Answer, answer, holds, not_asked, only_for, rule
from canary.errors import counted
from canary.record.exact import MOST_ZERO, TORCH_LOOP, group_of
from canary.record.facts import FollowedOptimizer, Holding
from canary.record.types import RunRecord

ZERO_GRADIENT_AT_START = ("lora_A", "lora_embedding_A")
"""LoRA starts with B = 0, so A has no gradient in the first step."""
ZERO_GRADIENT = "their gradient is 0: does the loss use them, or do they feed a tensor that is 0?"
CHECKPOINT_WITHOUT_GRADIENT = "None of the inputs have requires_grad=True"
"""Torch says so of a reentrant checkpoint, whose parameters then get no gradient."""
LOW = frozenset(("torch.bfloat16", "torch.float16"))
"""A small update may leave such a parameter as it is, also where a residual is kept elsewhere."""
MOST_LOST = 0.5
"""From this share on, most of the training is lost."""
FEWEST_ELEMENTS = 100
"""Fewest sampled elements of all updates that say something."""


@rule(
    "optimizer_holds_trainable",
    "the optimizer holds every trainable tensor that gets a gradient",
    "one rank, and an optimizer that holds the model's own tensors; a whole layer or module left "
    "out is a note",
    "make the optimizer from all trainable tensors, after the last of them was made or thawed; "
    "keep layers in a ModuleList, not in a plain list; freeze what is not to train",
    "https://github.com/huggingface/trl/issues/6700",
)
def optimizer_holds_trainable(record: RunRecord) -> Answer:
    """Every trainable tensor that gets a gradient is in an optimizer.

    What is left out on purpose is frozen, or is all of a layer or module, as before a head. That is
    a note, unless the optimizer holds tensors that the model has lost.
    """
    if record.exact.get("model", {}).get("trainable_parameters") == 0:
        return not_asked("no parameter is trainable")
    seen = updates_of(record)
    if not seen or "holding" not in seen:
        return not_asked(NO_UPDATES)
    holding, optimizers = seen["holding"], seen.get("optimizers", [])
    if not holding.get("tensors"):
        return answer("the optimizer is empty: nothing is trained", broken=True)
    if not any_gradient(seen):
        updates = counted(max((one["updates"] for one in optimizers), default=0), "update")
        words = f"no tensor of the optimizer had a gradient in {updates}"
        last = record.exact.get("frozen", {}).get("final_parameters_sha256")
        same = last and last == record.exact.get("model", {}).get("parameters_sha256")
        other = "other code may update the parameters"
        return answer(words, broken=True, doubt="" if same else other)
    if not holding.get("trainable_held"):
        return not_asked("the optimizer holds other tensors than the model, such as copies")
    return _missing(holding)


def _missing(holding: Holding) -> Answer:
    thawed, missing = holding.get("thawed", 0), holding.get("missing", 0)
    if thawed:
        names = holding.get("thawed_names", [])
        words = f"{counted(thawed, 'tensor')} thawed in the training but in no optimizer"
        what = f"{words} ({shown(names, thawed)})"
        return answer(what, broken=True, size=thawed, items=names, place=shown(names, 1))
    names = holding.get("missing_names", [])
    held = f"the optimizer holds {holding['trainable_held']} of {holding['trainable']}"
    if not missing:
        return holds(f"{held} trainable tensors, all that get a gradient")
    return answer(
        f"{held} trainable tensors; others get a gradient and never change "
        f"({shown(names, missing)})",
        broken=True,
        size=missing,
        items=names,
        place=shown(names, 1),
        doubt="all of these modules is left out: are they not to train?"
        if holding.get("left_out")
        else "",
    )


@rule(
    "trainable_changed",
    "trainable parameters change",
    "the learning rate of the first update is above 0",
    "make them trainable, and give them to the optimizer after that",
    "https://github.com/huggingface/peft/issues/2765",
)
def trainable_changed(record: RunRecord) -> Answer:
    """The first update changes every trainable tensor that an optimizer holds."""
    if record.exact.get("model", {}).get("trainable_parameters") == 0:
        return answer("no parameter is trainable", broken=True)
    update = record.exact.get("first_update")
    rates = record.exact.get("trajectory", {}).get("learning_rates", [])
    if not update or not rates:
        return not_asked("the first update was not recorded")
    if not rates[0] or rates[0] <= 0:
        return not_asked("the learning rate of step 1 is 0 (warm-up)")
    seen = updates_of(record) or {}
    holding = seen.get("holding", {})
    if "holding" in seen and not (holding.get("tensors") and any_gradient(seen)):
        return not_asked("no optimizer holds a tensor with a gradient")
    micro = record.exact["batches"][0] if record.exact.get("batches") else []
    if is_rollout(record) and micro and not any(any(m.get("advantages", [1])) for m in micro):
        return not_asked("every advantage of step 1 is 0")
    unheld = {*holding.get("missing_names", []), *holding.get("resting_names", [])}
    still = [
        tensor
        for tensor in update.get("tensors_unchanged", [])
        if not any(part in tensor for part in ZERO_GRADIENT_AT_START) and tensor not in unheld
    ]
    changed = update.get("tensors_changed") or 0
    if not still and not changed:
        return not_asked("no optimizer holds a tensor that did not change")
    if not still:
        return holds(f"{changed} trainable tensors changed in step 1", value=changed)
    wrong, doubt = _judged(record, still)
    if changed and doubt == ZERO_GRADIENT and all(name.endswith("bias") for name in wrong):
        # The gradient of a bias is a sum, which is often exactly 0: of signs, as with L1.
        zero = counted(len(wrong), "other")
        return holds(f"{changed} trainable tensors changed in step 1; {zero} had a gradient of 0")
    words = f"{len(wrong)} of {changed + len(still)} trainable tensors did not change in step 1"
    words += f" ({shown(wrong, len(wrong))})"
    return answer(words, broken=True, value=changed, items=wrong, place=wrong[0], doubt=doubt)


def _judged(record: RunRecord, still: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return the unchanged tensors that count, and what else may explain them; empty if nothing
    does. One whose gradient is missing or 0 counts only if all are so."""
    gradient = record.exact.get("first_gradient")
    if not gradient:
        return still, "the look did not see their gradients: are these 0?"
    groups, zero = gradient.get("groups", {}), gradient.get("tensors_with_zero_gradient", [])
    without = {*gradient.get("tensors_without_gradient", [])}
    none = set() if warned(record, CHECKPOINT_WITHOUT_GRADIENT) else without
    unsure = none.union(still if len(zero) == MOST_ZERO else zero)
    unsure |= {one for one in still if any(groups.values()) and groups.get(group_of(one)) == 0}
    if wrong := [one for one in still if one not in unsure]:
        return wrong, "" if without.issuperset(wrong) else _doubt_of_still(record)
    if none.issuperset(still):
        return still, "they get no gradient: are they unused by the loss?"
    return still, ZERO_GRADIENT


def _doubt_of_still(record: RunRecord) -> str:
    """Return what else may explain tensors that have a gradient; empty if nothing does."""
    trajectory = record.exact.get("trajectory", {})
    zero = {*trajectory.get("losses", []), *trajectory.get("grad_norms", [])} == {0.0}
    if zero and not is_rollout(record):
        return "losses and gradients are exactly 0: does it start at its minimum?"
    optimizers = (updates_of(record) or {}).get("optimizers", [])
    if sum(one.get("updates", 0) > 0 for one in optimizers) > 1:
        return "several optimizers make updates: do they take turns?"
    if LOW & set(record.exact.get("model", {}).get("dtypes", {})):
        return "some parameters are in half precision: may small updates round to nothing?"
    return ""


@rule(
    "updates_not_rounded",
    "updates are large enough for the precision of the parameters",
    "parameters in bfloat16 or float16 that an Adam of torch updates in place, and a learning rate "
    "that does not rise",
    "keep the parameters in float32 and use autocast, or raise the learning rate",
    "https://github.com/vllm-project/speculators/pull/765",
)
def updates_not_rounded(record: RunRecord) -> Answer:
    """An update of Adam is near the learning rate, so only rounding leaves an element equal."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    low = [one for one in seen.get("optimizers", []) if "rounding" in one]
    if not low:
        return only_for("parameters in bfloat16 or float16 that an Adam of torch updates")
    one = max(low, key=lambda found: found["rounding"]["asked"])
    rounding, rates = one["rounding"], [rate for rate in one.get("rates", []) if rate > 0]
    if not rates:
        return not_asked("the learning rate of every update is 0")
    if rates[-1] > rates[-2:][0] or 2 * sum(2 * rate >= max(rates) for rate in rates) < len(rates):
        return not_asked("the learning rate rises in most of the look")
    if rounding["asked"] < FEWEST_ELEMENTS:
        return not_asked("too few sampled elements had a gradient")
    return _of_rounding(one, rounding["lost"] / rounding["asked"])


def _of_rounding(one: FollowedOptimizer, lost: float) -> Answer:
    rounding = one["rounding"]
    still, dtype = rounding["still"], rounding["dtype"]
    words = (
        f"{lost:.0%} of sampled updates in {dtype} changed nothing at learning rate "
        f"{max(one['rates']):g}"
    )
    if still:
        names = shown(rounding["still_names"], still)
        words += f"; no update changed {still} of {rounding['tensors']} sampled tensors ({names})"
    most = lost >= MOST_LOST
    return answer(
        words,
        broken=bool(still) or most,
        size=lost,
        value=lost,
        place=shown(rounding["still_names"], 1) if still else "",
        doubt="" if still and most else "the other updates are large enough",
    )


@rule(
    "only_the_optimizer_writes",
    "parameters change only in updates",
    "one rank, and an optimizer that shares no tensors with another",
    "restore the trained weights after an evaluation with others",
    "https://arxiv.org/abs/2506.14813",
)
def only_the_optimizer_writes(record: RunRecord) -> Answer:
    """An update begins with the parameters that the one before left.

    Trainings write parameters on purpose, so this is always a note. Those that write before every
    update (limits of weights, norms) are not asked.
    """
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    asked = [one for one in seen.get("optimizers", []) if one.get("updates", 0) > 1]
    if not asked:
        return not_asked("the look has one update")
    for one in asked:
        written = one.get("written_before", [])
        if len(written) > 1 and len(written) >= one["updates"] - 1:
            return not_asked("the training itself writes parameters before every update")
        if written:
            name = one.get("written", "a tensor")
            places = ", ".join(map(str, written[:3])) + (", ..." if len(written) > 3 else "")
            return answer(
                f"parameters changed between the updates, before update {places} ({name})",
                broken=True,
                size=len(written),
                place=f"update {written[0]}",
                doubt="is an average of weights, or what an evaluation loads, left in on purpose?",
            )
    updates = max(one["updates"] for one in asked)
    return holds(f"sampled parameters changed only in the {updates} updates")


@rule(
    "frozen_unchanged",
    "frozen parameters do not change",
    "nothing updates the reference on purpose",
    "look for code that writes into parameters, and for a reference that shares them with the "
    "policy",
    "https://github.com/huggingface/trl/issues/1534",
)
def frozen_unchanged(record: RunRecord) -> Answer:
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
    return answer(words, broken=bool(moved), items=moved, doubt=doubt if own else "")


@rule(
    "weights_loaded",
    "a checkpoint that is loaded reaches the model",
    "a command that calls load_state_dict with strict=False",
    "rename the keys, and look at what load_state_dict returns",
    "https://github.com/pytorch/examples/issues/1029",
)
def weights_loaded(record: RunRecord) -> Answer:
    """A checkpoint that is loaded with `strict=False` has names that the model knows."""
    failed = record.exact.get("facts", {}).get("loads", [])
    if not failed:
        return only_for("commands whose load_state_dict found no name")
    one = failed[0]
    return answer(
        f"none of the {one['given']} tensors of a checkpoint was loaded into {one['model']}: it "
        f"names {one['name']}, and the model {one['wanted']}",
        broken=True,
        size=one["given"],
        place=one["wanted"],
    )


@rule(
    "ranks_agree",
    "all ranks hold the same parameters",
    "each rank holds the whole model",
    "wrap the model for several ranks before the first forward pass, and let nothing outside of it "
    "change weights",
)
def ranks_agree(record: RunRecord) -> Answer:
    """Ranks that each hold the whole model start and end with equal parameters."""
    ranks = record.exact.get("ranks")
    if not ranks:
        return only_for("several ranks")
    if ranks.get("sharded"):
        return not_asked("each rank holds only a part of the parameters")
    for moment, hashes in (
        ("final", ranks.get("final_parameters_sha256", {})),
        ("initial", ranks.get("initial_parameters_sha256", {})),
    ):
        others = [rank for rank, found in hashes.items() if found != next(iter(hashes.values()))]
        if others:
            words = f"{moment} parameters of rank {', '.join(others)} differ from rank 0"
            return answer(words, broken=True, size=len(others))
    return holds("all ranks hold the same parameters")
