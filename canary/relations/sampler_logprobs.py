"""Log-probabilities of the sampler and of the trainer."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, holds, outcome
from canary.relations.sampling import Round, Sampling

RELATION = Relation(
    "sampler_logprobs",
    "sampling",
    "sampler and trainer give the sampled tokens the same log-probabilities, before each update",
    "the sampler has old weights, another dtype, temperature, top-k or prompt, or samples in "
    "training mode",
    "https://github.com/huggingface/trl/issues/5312",
    moment="last",
    invariants=("sampled_ids_trained",),
)


def ask(look: Look) -> Outcome:
    """Compare the tokens that were sampled and then trained on, for each update."""
    found: Sampling = look.sampling
    if not found.rounds:
        return unseen(RELATION, found)
    worst = max(found.rounds, key=lambda one: one.largest / one.allowed)
    parted = next((one for one in found.rounds if not one.largest <= one.allowed), None)
    if parted is None:
        updates = len({one.update for one in found.rounds})
        tokens = sum(one.tokens for one in found.rounds)
        return holds(
            RELATION,
            f"{tokens} tokens of {updates} updates differ by at most {worst.largest:.2g}, "
            f"allowed {worst.allowed:.2g}",
        )
    kind = parted.source, parted.trainer
    alike = [one for one in found.rounds if (one.source, one.trainer) == kind]
    first, last = alike[0], max(alike, key=lambda one: one.mean)
    at_once = parted is first and (_why(first) or last.mean < 2 * first.mean)
    dtypes = {one.update: one.dtype for one in found.weights if one.dtype}
    words = _apart(parted) if at_once or last is first else _grown(first, last)
    if parted.update in dtypes:
        words += f"; the engine holds {dtypes[parted.update]}"
    return outcome(
        RELATION.id,
        "broken",
        words,
        f"update {parted.update}, {parted.place}",
        parted.values or (parted.mean,),
        parted.allowed,
    )


def _grown(first: Round, last: Round) -> str:
    why = _why(last)
    return (
        f"the mean difference grows from {first.mean:.2g} at update {first.update} to "
        f"{last.mean:.2g} at update {last.update}, allowed {last.allowed:.2g}{why}"
    )


def _apart(one: Round) -> str:
    assert one.values is not None
    sampler, trainer = one.values
    return (
        f"{one.source} gives a log-probability of {sampler:.6g}, and {one.trainer} {trainer:.6g}, "
        f"allowed {one.allowed:.2g}{_why(one)}"
    )


def _why(one: Round) -> str:
    found = [one.prompts] if one.prompts else []
    if one.temperatures is not None and one.temperatures[0] != one.temperatures[1]:
        sampler, trainer = one.temperatures
        found.append(f"the sampler's temperature is {sampler:g}, and the trainer's {trainer:g}")
    if one.cut:
        found.append("the loss takes these as the old ones, so its first ratio is not 1")
    if one.penalised:
        found.append("the sampler changes its logits, as a repetition penalty does")
    if one.in_training_mode:
        found.append("the sampler is in training mode")
    return "".join(f"; {words}" for words in found)


def unseen(relation: Relation, found: Sampling) -> Outcome:
    """Return why nothing was compared.

    Raises:
        CannotAsk: the training samples nothing.
    """
    if found.failed:
        return outcome(relation.id, "undecided", found.failed)
    if found.sampled and found.expected:
        words = f"none of {found.sampled} sampled sequences was found in the trained rows"
        return outcome(relation.id, "undecided", words)
    if found.expected:
        return outcome(relation.id, "undecided", "the sampler was not seen; see canary.sampled")
    raise CannotAsk("the training does not train on sampled tokens")
