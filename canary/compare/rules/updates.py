"""Updates: their gradients, clips and the mode of the model; learning rates and schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from canary.compare.rules.facts import NO_UPDATES, argument, by_step, updates_of, whole_number
from canary.compare.rules.rule import Answer, answer, holds, not_asked, only_for, rule
from canary.errors import counted
from canary.record.exact import TORCH_LOOP
from canary.record.facts import Schedule, UpdateFacts
from canary.record.types import RunRecord

FEWEST = 2
"""Updates that must show the same."""
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
        if any(modes) or not noisy:
            return not_asked(words)
        words += ": dropout or batch norm is off"
        return replace(answer(words, broken=True, doubt="is that on purpose?"), lost=words)
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


PERIODIC = ("CosineAnnealingLR",)
"""Schedules that begin again after their length."""
WARM_UPS = ("warmup_steps", "warmup_ratio")
"""Trainer arguments: warm-up steps, or their share of all steps."""


def _steady(seen: UpdateFacts) -> Iterator[tuple[Schedule, int, int]]:
    """Yield the schedules of a known length that step equally often in each update, with their
    steps and the micro-batches per update. After the last update of a look nothing is seen."""
    optimizers = [one for one in seen.get("optimizers", []) if not one.get("closure")]
    if not optimizers:
        return
    # The look may begin within the first accumulation.
    micro = [*set(optimizers[0].get("backwards", [])[1:])]
    for one in seen.get("schedules", []) if len(micro) == 1 else ():
        steps = one.get("steps", [])[: optimizers[0]["updates"] - 1]
        if len(steps) >= FEWEST and len({*steps}) == 1 and one.get("length"):
            yield one, steps[0], micro[0]


def _unsteady(seen: UpdateFacts, why: str) -> Answer:
    if not any(one.get("length") for one in seen.get("schedules", [])):
        return only_for("schedules that know their length")
    return not_asked(why)


@rule(
    "schedule_once_per_update",
    "the schedule steps once per update",
    "a schedule of known length that ends within the look",
    "step the scheduler only after optimizer.step()",
    "https://github.com/huggingface/accelerate/issues/963",
)
def schedule_once_per_update(record: RunRecord) -> Answer:
    """A schedule that counts updates steps once per update, not once per micro-batch.

    One that counts micro-batches is right to step with them. Its length cannot be that if it is
    over while the training goes on, unless it begins again.
    """
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    steady = [*_steady(seen)]
    if not steady:
        return _unsteady(seen, "no schedule of a known length stepped equally often in all updates")
    for one, steps, micro in steady:
        if steps > 1 and steps == micro:
            updates = len(one["steps"])
            over = one.get("begun_at", 0) + steps * updates > one["length"]
            words = f"the schedule of {one['length']} steps makes {steps} in each update"
            if over:
                words += f" and is over after {max(1, one['length'] // steps)} updates"
            sure = over and one.get("class") not in PERIODIC
            return answer(
                f"{words}, one per micro-batch",
                broken=True,
                size=steps,
                value=steps,
                place="update 1",
                doubt="" if sure else "its length may count micro-batches",
            )
    if all(steps > 1 for _, steps, _ in steady):
        return not_asked(
            f"the schedule makes {steady[0][1]} steps per update, as for several ranks"
        )
    return holds("the schedule makes 1 step per update")


def _made(record: RunRecord) -> int | None:
    """Return the updates of a loop that ended by itself; None if the canary may have ended it."""
    limits = ("max_steps", "exact", "stop_on")
    ended = record.status == "completed" and not any(record.config.get(key) for key in limits)
    if not ended or record.config.get("trainer") != TORCH_LOOP or len(record.launches) != 1:
        return None
    return record.launches[0].steps


@rule(
    "schedule_length",
    "the schedule is as long as the training",
    "gradient accumulation, and a trainer that knows its updates or a loop that ended itself",
    "divide the schedule's length by the micro-batches per update",
    "https://github.com/huggingface/diffusers/issues/2632",
)
def schedule_length(record: RunRecord) -> Answer:
    """A schedule that steps once per update is as long as the training has updates.

    A loop that the canary ended does not say how many updates it would make. That the length is a
    whole number of epochs of micro-batches is then a note.
    """
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    once = [(one, micro) for one, steps, micro in _steady(seen) if steps == 1]
    if not once:
        return _unsteady(seen, "no schedule of a known length stepped once per update")
    planned = seen.get("planned_updates") or _made(record)
    loader = seen.get("loader_length")
    for one, micro in once:
        length = one["length"]
        if planned:
            if micro > 1 and planned * micro <= length < (planned + 1) * micro:
                words = f"the schedule has {length} steps, the training {planned} updates"
                return answer(
                    f"{words} of {micro} micro-batches", broken=True, size=length / planned
                )
        elif micro > 1 and loader and length % loader == 0 and loader % micro == 0:
            epochs = length // loader
            return answer(
                f"the schedule of {length} steps is {micro} times as long as {epochs} epochs of "
                f"{loader // micro} updates: it counts micro-batches",
                broken=True,
                size=micro,
                value=length,
                doubt=f"or has the training {epochs * micro} epochs?",
            )
    if planned and any(one["length"] == planned for one, _ in once):
        return holds(f"the schedule has {planned} steps, as the training has updates")
    if all(micro == 1 for _, micro in once):
        return only_for("gradient accumulation")
    return not_asked("how many updates the training makes is not known")


@rule(
    "learning_rate_positive",
    "learning rates are positive",
    "the steps are neither a warm-up nor the last one",
    "look at the scheduler: its length, and how often it steps",
    "https://github.com/huggingface/accelerate/issues/2926",
)
def learning_rate_positive(record: RunRecord) -> Answer:
    """The learning rate is positive, except in the first steps of a warm-up and the last step."""
    recorded = by_step(record, "learning_rate")
    if all(rate is None for _, rate in recorded):
        return not_asked("learning rates were not recorded")
    rates = [rate or 0.0 for _, rate in recorded]
    if record.source is not None and any(rates):
        return holds("the log has learning rates above 0")  # where it ends, a schedule may too
    last = whole_number(record, "max_steps")
    first = next((place for place, rate in enumerate(rates) if rate > 0), len(rates))
    warm_up = _warms_up(record, rates[first:])
    zero = [
        step
        for step, rate in enumerate(rates, start=1)
        if not rate > 0 and not (warm_up and step <= first) and step != last
    ]
    if zero and len(rates) < FEWEST:
        return not_asked("the look has one update, which may begin a warm-up")
    doubt = "only the first steps: is this a warm-up?" if zero and zero[-1] <= first else ""
    return answer(
        f"{counted(len(zero), 'step')} with learning rate 0",
        broken=bool(zero),
        items=[f"step {step}" for step in zero],
        place=f"step {zero[0]}" if zero else "",
        doubt=doubt if first < len(rates) else "",
    )


def _warms_up(record: RunRecord, rates: Sequence[float]) -> bool:
    """Whether the config sets a warm-up, or the rates rise after the zeros at the start."""
    settings = (record.config.get("warmup_steps"), *(argument(record, key, 0) for key in WARM_UPS))
    configured = any(isinstance(value, int | float) and value > 0 for value in settings)
    return bool(rates) and (configured or (len(rates) > 1 and rates[1] > rates[0]))
