"""Updates: their gradients, clips and the mode of the model."""

from __future__ import annotations

from dataclasses import replace

from canary.compare.rules.facts import NO_UPDATES, updates_of
from canary.compare.rules.rule import Answer, answer, holds, not_asked, only_for, rule
from canary.errors import counted
from canary.record.types import RunRecord

FEWEST = 2
"""Updates that must begin with old gradients."""
SUBJECT = "updates of the optimizer"
"""What could not be watched if no clip is known."""


@rule(
    "gradients_start_empty",
    "no update uses the gradients of the update before",
    "a backward before each update, outside of the optimizer's step, that adds to its gradients",
    "call optimizer.zero_grad() once per update, after the step or before the first backward",
    "https://arxiv.org/abs/2506.14813",
)
def gradients_start_empty(record: RunRecord) -> Answer:
    """The gradients that an update used are gone when the next one's last backward begins."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    asked = [one for one in seen.get("optimizers", []) if not one.get("closure")]
    asked = [one for one in asked if one.get("left", 0) + one.get("emptied", 0) >= FEWEST]
    if not asked:
        return not_asked(f"fewer than {FEWEST + 1} updates whose backward wrote their gradients")
    worst = max(asked, key=lambda one: one.get("left", 0))
    left, emptied = worst.get("left", 0), worst.get("emptied", 0)
    total = left + emptied
    if not left:
        return holds(f"the gradients of {total} updates were gone before the next one")
    return answer(
        f"{left} of {total} updates reused gradients of the update before",
        broken=True,
        size=left,
        place="update 2" if not emptied else "",
        doubt="the gradients of other updates were gone" if emptied else "",
    )


@rule(
    "clip_before_step",
    "gradients are clipped when they are complete, before the optimizer uses them",
    "a training whose clips are seen",
    "clip once per update, between its last backward() and optimizer.step()",
    "https://arxiv.org/abs/2506.14813",
)
def clip_before_step(record: RunRecord) -> Answer:
    """Gradients are clipped between the last backward of an update and the optimizer's step."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    clipped = [
        one
        for one in seen.get("optimizers", [])
        if not one.get("closure") and (one.get("clips_before") or one.get("clips_after"))
    ]
    if not clipped:
        return only_for("trainings whose clipping was seen")
    between = max(one.get("clips_between", 0) for one in clipped)
    if between >= FEWEST:
        words = f"gradients were clipped {between} times before the last backward of their update: "
        return answer(f"{words}later micro-batches weigh more", broken=True, size=between)
    # The look may end with the step of its last update.
    late = [
        one
        for one in clipped
        if not one.get("clips_before") and one.get("clips_after", 0) >= max(2, one["updates"] - 1)
    ]
    if not late:
        before = max(one.get("clips_before", 0) for one in clipped)
        return holds(f"gradients were clipped before {counted(before, 'step')}")
    count = late[0]["clips_after"]
    acted = any(one.get("clips_after_acted") for one in late)
    return answer(
        f"gradients were clipped {count} times after the optimizer's step, and never before it",
        broken=True,
        size=count,
        place="update 1",
        doubt="" if acted else "no norm was above the limit: is it only measured?",
    )


@rule(
    "clip_takes_effect",
    "clipping acts on the gradients of the update",
    f"at least {FEWEST} clips with a limit",
    "give clip_grad_norm_ a list of the parameters, since a generator can be read once; call "
    "scaler.unscale_(optimizer) before it",
    "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
)
def clip_takes_effect(record: RunRecord) -> Answer:
    """A clip acts on the gradients that the update uses: there are some, and no scaler's factor is
    in them."""
    facts = record.exact.get("facts")
    if facts is None:
        return not_asked("clipping was not watched")
    seen = facts.get("clips")
    if not seen and SUBJECT in facts.get("unseen", {}):
        return not_asked("clipping was not watched")
    if not seen or seen["clips"] < FEWEST:
        return only_for("trainings that clip gradients")
    if seen["empty"] == seen["clips"]:
        words = f"{seen['clips']} clips got no tensor with a gradient: nothing is clipped"
        return answer(words, broken=True, size=seen["empty"])
    if seen["scaled"] >= FEWEST:
        words = (
            f"{seen['scaled']} of {seen['clips']} clips came before the scaler divided the "
            "gradients: they are clipped to almost nothing"
        )
        return answer(words, broken=True, size=seen["scaled"])
    return holds(f"{counted(seen['clips'], 'clip')} acted on gradients")


@rule(
    "stays_in_training_mode",
    "a model that begins in training mode stays in it",
    "dropout or batch norm, and a first update in training mode",
    "call model.train() after each evaluation",
    "https://arxiv.org/abs/2506.14813",
)
def stays_in_training_mode(record: RunRecord) -> Answer:
    """A model that begins in training mode is in it in every update.

    A part in evaluation mode is a choice, such as frozen statistics of batch norm: only a model
    without any module in training mode counts.
    """
    seen = updates_of(record)
    if not seen or not seen.get("modes"):
        return not_asked(NO_UPDATES)
    modes = seen["modes"]
    if len(modes) < 2:
        return not_asked("the look has one update")
    noisy = seen.get("noisy_modules", 0)
    if not modes[0]:
        words = "the model trains in evaluation mode from the start"
        lost = "" if any(modes) or not noisy else f"{words}: dropout or batch norm is off"
        return replace(not_asked(words), lost=lost)
    if not noisy:
        return only_for("models with dropout or batch norm")
    if all(modes):
        return holds(f"the model was in training mode in all {len(modes)} updates")
    first = modes.index(False) + 1
    back = any(modes[first:])
    modules = counted(noisy, "module")
    return answer(
        f"from update {first} on, the whole model trains in evaluation mode: dropout or batch norm "
        f"of {modules} is off",
        broken=True,
        size=modes.count(False),
        place=f"update {first}",
        doubt="later updates are in training mode again" if back else "",
    )
