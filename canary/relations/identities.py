"""What is known of a first update, of the KL term and of advantages."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds, outcome
from canary.relations.trained import CONSTANT, TrainedRow, TrainedUpdate, is_called

RELATION = Relation(
    "identities",
    "start and end",
    "the first loss, ratio and KL have their known values; the KL term pulls towards the "
    "reference; advantages add up to 0",
    "policy and reference differ before training, the KL term has the wrong sign, or advantages "
    "are normalised over other rows",
    "https://arxiv.org/abs/2402.03300",
    moment="last",
    invariants=(
        "dpo_first_loss",
        "kto_first_loss",
        "starts_at_ratio_one",
        "advantages_sum_to_zero",
        "advantages_scaled",
        "rewards_add_up",
    ),
    inapplicable="this trainer has no known first values",
)
RATIO = 1e-2
"""Of log-probabilities; more than another kernel or mixed precision changes."""
PURE = 0.9
"""Correlation: if the KL term alone varies within a row, it is almost 1 or -1."""
LEAST_UPDATES = 2
LEAST_TOKENS = 12
"""Of an update, for each sign of the advantage."""
BY_GROUP = ("grpo", "rloo")
"""Parts of names: these normalise advantages within the completions of a prompt."""
BY_BATCH = ("reinforce",)
"""REINFORCE++ normalises over the batch on purpose (arXiv 2501.03262)."""


def ask(look: Look) -> Outcome:
    """Ask the weights of all updates for the sign of the KL term and the sums of advantages."""
    failed = next((one.failed for one in look.trained if one.failed), "")
    if failed:
        return outcome(RELATION.id, "undecided", failed)
    asked = (_first_ratio(look), _kl_sign(look), _group_sums(look))
    answers = [one for one in asked if one is not None]
    if not answers:
        raise CannotAsk("the weights show neither a KL term nor advantages of groups")
    found = next((one for one in answers if one["status"] == "broken"), answers[0])
    if found["status"] == "holds":
        found["message"] = "; ".join(one["message"] for one in answers)
    return found


# The ratio.


def _first_ratio(look: Look) -> Outcome | None:
    """Ask whether the policy says of sampled rows what it said just before, without gradients: a
    ratio of both is 1."""
    found = [
        (update.number, max(row.apart for row in rows if row.apart is not None))
        for update in look.trained
        if (rows := [one for one in update.rows if one.group is not None and one.apart is not None])
    ]
    moved = [(number, apart) for number, apart in found if apart > RATIO]
    if not moved or len(moved) < len(found):
        return None
    number, apart = moved[0]
    words = (
        f"log-probabilities of the policy move by up to {apart:.2g} between sampling and update, "
        "as with dropout: its first ratio is not 1"
    )
    return broken(RELATION, words, f"update {number}", (apart,))


# The KL term.


def _kl_sign(look: Look) -> Outcome | None:
    """Ask whether the loss raises tokens that the reference finds likelier. At the start there is
    no difference; a ratio raises and lowers rows in opposite ways, so both must agree."""
    found = [(one, _pulls(one)) for one in look.trained[1:]]
    known = [(one, pulls) for one, pulls in found if pulls]
    if len(known) < LEAST_UPDATES:
        return None
    worst = max(value for _, pulls in known for value in pulls)
    least = min(value for _, pulls in known for value in pulls)
    updates = f"in {len(known)} updates"
    of_both = sum(len(pulls) == 2 for _, pulls in known)
    if worst < -PURE and of_both >= LEAST_UPDATES:
        return broken(
            RELATION,
            "the KL term pushes away from the reference: within a row, tokens that the reference "
            f"finds likelier weigh less; the correlation is {worst:.2f} or below {updates}",
            f"update {known[0][0].number}",
            (worst,),
        )
    if least > PURE:
        return holds(
            RELATION,
            f"the KL term pulls towards the reference: correlation {least:.2f} or above {updates}",
        )
    return None


def _pulls(update: TrainedUpdate) -> list[float]:
    """Return the mean correlation of rows that are raised, and of those that are lowered."""
    found = []
    for sign in (1, -1):
        rows = [row for row in update.rows if row.towards is not None and sign * row.mean > 0]
        tokens = sum(row.tokens for row in rows)
        if tokens >= LEAST_TOKENS:
            found.append(sum(row.tokens * (row.towards or 0.0) for row in rows) / tokens)
    return found


# Advantages.


def _group_sums(look: Look) -> Outcome | None:
    """Ask whether advantages add up to 0 within the rows that were sampled for one prompt."""
    judged = [one for one in look.trained if _has_groups(one)]
    if not judged:
        return None
    for by_length in (False, True):
        if all(_worst_group(one, by_length) <= CONSTANT for one in judged):
            words = f"advantages add up to 0 in each group of {len(judged)} updates"
            return holds(RELATION, words)
    name = is_called(judged, *BY_GROUP)
    if len(judged) < LEAST_UPDATES or not name or is_called(judged, *BY_BATCH):
        return None
    for by_length in (False, True):
        if all(_apart(one.rows, by_length) <= CONSTANT for one in judged):
            first = judged[0]
            return broken(
                RELATION,
                f"the training calls itself {'GRPO' if 'grpo' in name.lower() else 'RLOO'} "
                f"({name}), but advantages add up to 0 over the update only: over the completions "
                f"of a prompt, the sum is {_worst_group(first, by_length):.0%} of their sizes",
                f"update {first.number}",
            )
    return None


def _has_groups(update: TrainedUpdate) -> bool:
    """Whether all rows are of several groups, and each row shows one advantage."""
    groups = _groups(update)
    return (
        len(groups) > 1
        and all(len(rows) > 1 for rows in groups)
        and all(row.group is not None for row in update.rows)
        and all(row.is_constant for row in update.rows)
        and any(row.mean for row in update.rows)
    )


def _groups(update: TrainedUpdate) -> list[list[TrainedRow]]:
    found: dict[int | None, list[TrainedRow]] = {}
    for row in update.rows:
        found.setdefault(row.group, []).append(row)
    return [*found.values()]


def _worst_group(update: TrainedUpdate, by_length: bool) -> float:
    return max(_apart(rows, by_length) for rows in _groups(update))


def _apart(rows: list[TrainedRow] | tuple[TrainedRow, ...], by_length: bool) -> float:
    """Return the sum of advantages relative to the sum of their sizes. `by_length`: the loss
    divides a row by its tokens, so that the sum of its weights is its advantage."""
    values = [row.total if by_length else row.mean for row in rows]
    size = sum(map(abs, values))
    return abs(sum(values)) / size if size else 0.0
