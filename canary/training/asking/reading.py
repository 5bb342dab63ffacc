"""Questions that the first updates answer by themselves: the gradient of the logits says what each
token was trained towards, and how strongly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from canary.record.exact import Asked
from canary.training.asking.calls import SURE, Call
from canary.training.asking.look import LEAST, CannotAsk, Look, broken, holds, masked_ids, note
from canary.training.asking.updates import CONSTANT, Row, Update, is_called

FACTOR, FLOOR = 8.0, 16 * 1.2e-7
"""Weights may differ by so many times their spread within a micro-batch, or by rounding."""
EVEN = 0.02
"""Relative; five roundings of a gradient in bfloat16. A larger spread is no rounding."""
PLACES = {1: "the next token", 0: "its own token", 2: "the token after the next"}
"""What a label is, by the distance of its place."""
COPIES = "is the model to repeat its input? If not, shift the labels once, in the data or the loss"
AHEAD = "is another token than the next predicted on purpose?"
LEAST_LABELS = 8
LEAST_COLUMNS = 2
"""Of a row that must be trained: a single one may stand for the end of the text."""
SURE_RUN = 3
"""Columns of a run that are padding, even if it does not follow EOS: a sampled text may end with
the token of padding."""
RATIO = 1e-2
"""Of log-probabilities; more than another kernel or mixed precision changes."""
PURE = 0.9
"""Correlation: if the KL term alone varies within a row, it is almost 1 or -1."""
LEAST_UPDATES = 2
LEAST_SIGNED = 12
"""Tokens of an update, for each sign of the advantage."""
LEAST_GROUP = 3
"""Rows of one prompt: two are a pair of preferences."""
BY_GROUP, BY_BATCH = ("grpo", "rloo"), ("reinforce",)
"""Parts of names: what normalises advantages within a prompt's completions, and what over the batch
on purpose (arXiv 2501.03262)."""
ONLINE = ("ppo", "grpo", "rloo", "reinforce")
"""Parts of names: there the policy's own log-probabilities are the old ones of a ratio."""


ADDED = "gradients of means are added: is the sum divided by the number of micro-batches elsewhere?"


def accumulation(look: Look) -> Asked:
    """Compare the weights of trained tokens across the micro-batches of the first update."""
    calls = [one for one in look.calls if one.labels is not None and one.scores_tokens]
    if len(calls) < 2:
        raise CannotAsk("only for gradient accumulation")
    lowers = any(bool((one.weights < 0).any()) for one in calls if one.weights is not None)
    if look.samples or (lowers and not {"chosen", "label"} & look.columns):
        raise CannotAsk("only for losses that weigh all tokens alike")
    read = []
    for at, call in enumerate(calls):
        assert call.weights is not None
        size = call.weights.abs()
        used = size[size > LEAST * size.max()]
        middle = float(used.median()) if len(used) else 0.0
        spread = float((used / middle - 1).abs().quantile(0.95)) if middle else 1.0
        if spread > EVEN:
            raise CannotAsk("the tokens of a micro-batch have different weights")
        read.append((middle, at, len(used), spread))
    (most, at, more, _), (least, other, less, _) = max(read), min(read)
    if most / least - 1 <= max(FACTOR * max(spread for *_, spread in read), FLOOR):
        words = f"a token weighs {most:.4g} in each of {len(calls)} micro-batches"
        if all(abs(size * weight - 1) <= EVEN for weight, _, size, _ in read):
            return note(f"{words}, as in a mean over this one alone", "update 1", ADDED)
        return holds(words)
    words = f"a token weighs {most:.4g} in micro-batch {at} with {more} tokens, and {least:.4g} in "
    words += f"micro-batch {other} with {less}"
    if any(_is_mean_of(sizes, [weight for weight, *_ in read]) for sizes in _sizes(calls, read)):
        return broken(words, f"micro-batch {at}")
    doubt = "their sizes do not explain it: has each kind of data its own weight?"
    return note(words, f"micro-batch {at}", doubt)


def _sizes(calls: Sequence[Call], read: Sequence[tuple[float, int, int, float]]) -> list[list[int]]:
    """Return what a loss may divide each micro-batch by: tokens that are trained, real or there."""
    real = [int(one.ids.numel() if one.mask is None else one.mask.sum()) for one in calls]
    there = [one.ids.numel() for one in calls]
    return [[count for *_, count, _ in read], real, there, [len(one.ids) for one in calls]]


def _is_mean_of(sizes: Sequence[int], weights: Sequence[float]) -> bool:
    """Whether weights are those of a mean over so many in each micro-batch."""
    sums = [size * weight for size, weight in zip(sizes, weights, strict=True)]
    return max(sums) - min(sums) <= EVEN * max(sums)


def next_token(look: Look) -> Asked:
    """Compare the labels that the gradient shows with the tokens around them.

    Extra heads and autoencoders are trained towards other tokens on purpose. What `generate` of
    transformers reads as the next token is not.
    """
    known = look.known
    nothing = all(one.strengths is not None and not one.strengths.any() for one in look.calls)
    # A loss may begin at 0: of equal rewards, or of a model that equals its teacher.
    if nothing and not (look.references or look.samples or is_called(look.updates, *ONLINE)):
        words = f"no token is trained on: the gradient of all logits is 0 in {len(known)} calls"
        return broken(words, "update 1")
    for shift, what in PLACES.items():
        alike, of = _share(look, shift)
        if shift == 1 and of < LEAST_LABELS:
            raise CannotAsk(f"no call shows at least {LEAST_LABELS} labels beside their tokens")
        if of >= LEAST_LABELS and alike >= SURE * of:
            words = f"{alike} of {of} labels are {what}"
            if shift != 1 and not getattr(look.model, "can_generate", bool)():
                if look.is_causal:
                    return note(words, "update 1", AHEAD if shift else COPIES)
                raise CannotAsk(f"{words}, and the model has no `generate` of transformers")
            return holds(words) if shift == 1 else broken(words)
    raise CannotAsk("the labels match no nearby token")


def _share(look: Look, shift: int) -> tuple[int, int]:
    """Return how many trained labels are the token at a distance, and how many have such one."""
    alike = of = 0
    for call in look.known:
        assert call.weights is not None
        ids, size = call.ids.cpu(), call.weights.abs()
        used = size > LEAST * size.max()
        used[:, used.shape[1] - max(0, shift - 1) :] = False
        for row, (_, end) in enumerate(look.spans(call)):
            # The token at this distance is padding: the text goes on in the labels alone.
            used[row, max(0, end + 1 - shift) :] = False
        alike += int((call.labels == ids.roll(1 - shift, 1))[used].sum())
        of += int(used.sum())
    return alike, of


# Padding.


def trained_padding(look: Look) -> Asked:
    """Look for padding that the loss trains towards, or from."""
    pad, calls = look.pad_id, [one for one in look.known if not one.is_fused]
    texts = []
    for one in calls:
        read = (one.ids, one.weights, one.labels, one.strengths)
        columns = (values.tolist() for values in read if values is not None)
        texts += [*zip(range(len(one.ids)), *columns, look.spans(one), strict=True)]
    inside = [pad in ids[first : end - 1] for _, ids, *_, (first, end) in texts]
    masked = masked_ids(calls)
    # Masks cover the token, or no text holds it.
    if not calls or pad is None or (masked != {pad} and (masked or any(inside))):
        raise CannotAsk("the rows do not show which token is padding")
    largest, strongest = (
        LEAST * max(abs(one) for text in texts for one in text[column]) for column in (2, 4)
    )
    spoilt, of = list[tuple[int, list[int]]](), 0
    for (row, ids, weights, labels, strengths, span), is_inside in zip(texts, inside, strict=True):
        here = [] if is_inside else _padding(look, ids, *span)
        lost = [
            at
            for at in here
            if (at - 1 in here and strengths[at] > strongest)
            or (labels[at] == pad and abs(weights[at]) > largest)
        ]
        spoilt += [(row, lost)] if len(lost) >= LEAST_COLUMNS else []
        of += len(here)
    count, what = sum(len(places) for _, places in spoilt), f"of {of} padding tokens are trained"
    if not spoilt:
        return holds(f"0 {what} on, in {len(texts)} rows")
    row, places = spoilt[0]
    words = f"{count} {what} on, in {len(spoilt)} of {len(texts)} rows"
    return broken(words, f"row {row}, token {places[0]}")


def _padding(look: Look, line: Sequence[int], first: int, end: int) -> list[int]:
    """Return the columns of padding around an example, where they are sure to be no text."""
    left, right = first, end
    while left and line[left - 1] == look.pad_id:
        left -= 1
    while right < len(line) and line[right] == look.pad_id:
        right += 1
    before, after = [*range(left, first)], [*range(end, right)]
    if look.pad_id in look.eos_ids:
        # The text begins with one if that is BOS too, and ends with one unless a mask hides it.
        before = before[:-1]
        after = after if end > first and line[end - 1] == look.pad_id else after[1:]
    if len(after) < SURE_RUN and not (end > first and line[end - 1] in look.eos_ids):
        after = []
    return [*before, *after]


def leftover(look: Look) -> Asked:
    """Look for ends of rows that are left over from an earlier batch."""
    found = look.buffer.left_over()
    if not found:
        return holds("no row ends like the row that was there before")
    worst = found[0]
    words = f"row {worst.row} ends with {worst.size} tokens of the row that was there before"
    words += f", as {len(found) - 1} more do" if len(found) > 1 else ""
    return broken(words, worst.place)


# References and advantages.


def reference(look: Look) -> Asked:
    """Ask whether the reference draws at random, or is the policy. A loss of margins is then the
    same in each update, whatever was learned."""
    if not look.is_preference:
        raise CannotAsk("only for trainings that raise some rows and lower others")
    if any(one.is_random for one in look.references):
        return broken("the reference is in training mode and has dropout")
    if _is_itself(look):
        words = f"the policy itself is the reference: in updates 2 to {look.updates[-1].number}, "
        words += f"both score all rows alike, and the loss stays at {look.losses[0]:.6g}"
        return broken(words, "update 2")
    if not look.references:
        raise CannotAsk("only for trainings with a reference")
    return holds("the reference is not the policy, and has no dropout")


def _is_itself(look: Look) -> bool:
    updates, rows = look.updates, [row for one in look.updates for row in one.rows]
    later = [row for one in updates[1:] for row in one.rows]
    if len(updates) <= LEAST_UPDATES or not all(one.rows for one in updates):
        return False
    # The policy's own log-probabilities may be those of a ratio.
    if look.samples or is_called(updates, *ONLINE) or any(map(_groups, updates)):
        return False
    if not all(row.itself and not row.elsewhere for row in later):
        return False
    half = all(2 * sum(row.mean > 0 for row in one.rows) == len(one.rows) for one in updates)
    alike = all(row.is_constant and row.mean for row in rows) and any(
        max(values) - min(values) <= CONSTANT * max(values)
        for values in ([abs(x.mean) for x in rows], [abs(x.total) for x in rows])
    )
    losses = [one for one in look.losses if one is not None]
    size = max(map(abs, losses), default=0.0)
    same = len(losses) > LEAST_UPDATES and max(losses) - min(losses) <= 1e-5 * size
    return half and alike and same and size > 1e-6


def first_ratio(look: Look) -> Asked:
    """Ask whether the policy says of sampled rows what it said just before, without gradients: a
    ratio of both is 1."""
    online = look.samples or is_called(look.updates, *ONLINE)
    if not online or not look.is_preference:
        raise CannotAsk("only for online RL")
    of_updates = (
        (one.number, [row.apart for row in one.rows if row.apart is not None])
        for one in look.updates
    )
    found = [(max(apart), number) for number, apart in of_updates if apart]
    if not found:
        raise CannotAsk("the policy does not score its rows just before an update")
    most, number = max(found)
    if min(found)[0] <= RATIO:
        return holds(f"log-probabilities move by {most:.2g} between sampling and update")
    words = f"log-probabilities of the policy move by up to {most:.2g} between sampling and update"
    return broken(f"{words}, as with dropout: its first ratio is not 1", f"update {number}")


def kl_sign(look: Look) -> Asked:
    """Ask whether the loss raises tokens that the reference finds likelier. At the start there is
    no difference; a ratio raises and lowers rows in opposite ways, so both must agree."""
    known = [(one, pulls) for one in look.updates[1:] if (pulls := _pulls(one))]
    if len(known) < LEAST_UPDATES and look.references:
        raise CannotAsk("too few updates show a KL term")
    if len(known) < LEAST_UPDATES:
        raise CannotAsk("only for trainings with a reference and a KL term")
    every = [value for _, pulls in known for value in pulls]
    if max(every) < -PURE and sum(len(pulls) == 2 for _, pulls in known) >= LEAST_UPDATES:
        words = "the KL term pushes away from the reference: within a row, tokens that the "
        words += f"reference finds likelier weigh less; the correlation is {max(every):.2f} or less"
        return broken(words, f"update {known[0][0].number}")
    if min(every) > PURE:
        return holds(f"the KL term pulls towards the reference: correlation {min(every):.2f}")
    raise CannotAsk("the weights show no KL term alone")


def _pulls(update: Update) -> list[float]:
    """Return the mean correlation of rows that are raised, and of those that are lowered."""
    found = []
    for sign in (1, -1):
        rows = [row for row in update.rows if row.towards is not None and sign * row.mean > 0]
        tokens = sum(row.tokens for row in rows)
        if tokens >= LEAST_SIGNED:
            found.append(sum(row.tokens * (row.towards or 0.0) for row in rows) / tokens)
    return found


def group_advantages(look: Look) -> Asked:
    """Ask whether advantages add up to 0 within the completions of one prompt."""
    judged = [(one, groups) for one in look.updates if (groups := _groups(one))]
    if not judged and is_called(look.updates, *BY_GROUP):
        raise CannotAsk("no update has several prompts with unequal advantages each")
    if not judged or _are_spread(look.updates):
        raise CannotAsk("only for online RL with several completions per prompt in each update")
    groups = [rows for _, several in judged for rows in several]
    if any(all(_apart(one, by_length) <= CONSTANT for one in groups) for by_length in (0, 1)):
        return holds(f"advantages add up to 0 in each group of {len(judged)} updates")
    updates = [one for one, _ in judged]
    name = is_called(updates, *BY_GROUP)
    if len(judged) < LEAST_UPDATES or not name or is_called(updates, *BY_BATCH):
        raise CannotAsk("nothing shows that advantages are normalised within each prompt")
    for by_length in (False, True):
        if all(_apart(one.rows, by_length) <= CONSTANT for one in updates):
            worst = max(_apart(one, by_length) for one in groups)
            words = f"the training is named {'GRPO' if 'grpo' in name.lower() else 'RLOO'} "
            words += f"({name}), but advantages add up to 0 over the update only: over the "
            words += f"completions of a prompt, the sum is {worst:.0%} of their sizes"
            return broken(words, f"update {updates[0].number}")
    raise CannotAsk("advantages add up to 0 neither in groups nor in updates")


def _groups(update: Update) -> list[list[Row]]:
    """Return the completions of each prompt, if all have several and each row one advantage."""
    found: dict[bytes, list[Row]] = {row.prompt: [] for row in update.rows if row.tokens}
    for row in update.rows:
        # An advantage of 0 does not show where the prompt ends.
        starts = (one for one in found if row.key.startswith(one))
        prompt = row.prompt if row.tokens else next(starts, None)
        if prompt is not None:
            found[prompt].append(row)
    sizes = {*map(len, found.values())}
    whole = len(found) > 1 and len(sizes) == 1 and min(sizes) >= LEAST_GROUP
    return [*found.values()] if whole and all(row.is_constant for row in update.rows) else []


def _are_spread(updates: Sequence[Update]) -> bool:
    """Whether the completions of a prompt are spread over several updates."""
    by_prompt: dict[bytes, set[frozenset[bytes]]] = {}
    for update in updates:
        for prompt in {row.prompt for row in update.rows if row.tokens}:
            here = frozenset(row.key for row in update.rows if row.key.startswith(prompt))
            by_prompt.setdefault(prompt, set()).add(here)
    return any(len(one) > 1 for one in by_prompt.values())


def _apart(rows: Sequence[Row], by_length: int) -> float:
    """Return the sum of advantages relative to the sum of their sizes. `by_length`: the loss
    divides a row by its tokens, so that the sum of its weights is its advantage."""
    values = [row.total if by_length else row.mean for row in rows]
    size = sum(map(abs, values))
    return abs(sum(values)) / size if size else 0.0


QUESTIONS: dict[str, Callable[[Look], Asked]] = {
    one.__name__: one
    for one in (
        *(accumulation, next_token, trained_padding, leftover),
        *(reference, first_ratio, kl_sign, group_advantages),
    )
}
"""By the ids of their rules."""
