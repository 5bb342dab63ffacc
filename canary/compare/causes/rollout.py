"""What is learned: sampling, rewards, and the log-probabilities of the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.report import Difference

GENERATION = (
    "compare the generation settings: temperature, top_p, top_k, lengths, stop tokens, use_cache",
    "compare the seed, and other code that draws random numbers",
)
LOGITS = (
    "compute the log-probability of one sampled token by hand: temperature, mask, precision and "
    "dropout as in sampling",
)
REWARD = (
    "compute the reward of one completion by hand on both sides",
    "print prompt, completion and reward of one row: each must keep its place",
)
STAGES = ("rollout", "first_loss", "first_gradient", "first_update", "trajectory", None)
"""First differences before which samples are equal."""


def _exchanged(facts: Facts) -> object:
    """Whether step 1 has the rewards, or a step the scores, of other completions."""
    if facts.entry == "first_loss":
        return facts.advantages_exchanged
    found = facts.signal("scores")
    step = (found.step if found else None) or 1
    moved = any(facts.metric_moved(name, step) for name in ("reward", "reward_std"))
    return found and not moved and found


def _more_fed(facts: Facts) -> object:
    """Whether equally many forward passes get more tokens."""
    fed = None if facts.more_forwards else facts.rose("tokens_fed")
    return fed and [fed, facts.grown_phase("generation", "reward")]


def _slow_phase(facts: Facts) -> str:
    found = facts.grown_phase("generation", "reward")
    return found.phase if found and facts.entry is None and not facts.rose("tokens_fed") else ""


def _other_mask(facts: Facts) -> object:
    """Whether step 1 has completions of the same text, but not the same tokens to train on."""
    unsampled = facts.failed("sampled_ids_trained")
    same = facts.entry in ("data", "batches") and facts.batches.same_first_texts
    return (same or unsampled) and [*facts.differences("batches")[:1], unsampled]


def _other_samples(facts: Facts) -> list[Difference]:
    batches = facts.batches
    others = batches.known and not (batches.same_rows or batches.same_first_texts)
    first = facts.entry in ("data", "batches") and others and batches.same_prompts
    return facts.differences("batches")[:1] if first else []


def _sampled_at_step_2(facts: Facts) -> Difference | None:
    """Return the difference of step 2's completions, if the parameters are equal until then."""
    loss = facts.first_step("loss")
    first = facts.batches.steps_differ_from == 2 and (loss is None or loss >= 2)
    same = facts.same_parameters_after_first_update is not False
    found = facts.difference("trajectory", "sampled completions")
    return found if facts.entry == "trajectory" and first and same else None


def _other_rewards(facts: Facts) -> object:
    """Whether rewards differ, or are all equal now, for equal samples."""
    flat, moved = facts.failed("reward_varies"), facts.metric_moved("reward")
    first = facts.rollout_signal
    if facts.entry == "trajectory" and first is not None:
        moved = first.signal == "scores"
    differ = facts.entry in STAGES and not facts.rewards_read_other_data and (flat or moved)
    step = first.step if first is not None else None
    return differ and [flat, *_evidence(facts, "reward", "mean reward", step or 1)]


def _evidence(facts: Facts, name: str, words: str, step: int = 1) -> Iterator[Evidence]:
    """Yield a metric of a step on both sides, if both reported it."""
    was, now = (side[step - 1 : step] for side in facts.metric(name))
    if was and now:
        words = f"{words} of step {step} {_show(was[0])} -> {_show(now[0])}"
        yield Evidence("signal", words, was[0], now[0])


def _other_entropy(facts: Facts) -> object:
    moved = facts.metric_moved("entropy") and not facts.metric_moved("reward")
    return facts.entry in STAGES[1:-1] and moved and [*_evidence(facts, "entropy", "entropy")]


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _row(
    when: Callable[[Facts], object],
    says: str | Callable[[Facts], str],
    advice: tuple[str, ...],
    strength: float = 0.9,
    sign: str | Callable[[Facts], str] = "",
) -> Row:
    """Return a row for trainers that generate what they train on."""
    return Row(C.ROLLOUT, lambda f: f.rollout and when(f), says, advice, strength, sign)


# fmt: off
ROWS = (
    _row(_more_fed,
        "generation feeds more tokens for the same completions: it recomputes earlier ones",
        ("count the tokens that enter each forward pass of generation", *GENERATION), 0.95,
        "tokens_fed"),
    _row(lambda f: _slow_phase(f) and f.grown_phase("generation", "reward"), lambda f:
        f"{_slow_phase(f)} takes longer", ("profile the reward function and generation",
        GENERATION[0]), 0.85, _slow_phase),
    _row(_other_mask, "the completions have the same text as the sampled ones, but other ids or "
        "another mask: {completion_tokens} tokens are trained", ("print ids and mask of one "
        "completion as sampled and as trained: where does it end?",), 0.95),
    _row(_other_samples, "the same prompts and parameters give different completions", GENERATION),
    _row(_sampled_at_step_2, "equal parameters give different completions at step 2", GENERATION),
    _row(_exchanged, "completions get the scores of other completions", REWARD[::-1], 0.96),
    _row(_other_rewards, lambda f: ("all completions get the same reward"
        if f.failed("reward_varies") else "rewards differ for equal completions"), REWARD, 0.95),
    _row(lambda f: f.failed("starts_at_ratio_one"),
        "the trained policy is not the one that sampled", LOGITS, 0.8),
    _row(_other_entropy,
        "log-probabilities differ for the same completions: they are not those of the sampling "
        "distribution", LOGITS),
    _row(lambda f: (s := f.signal("logprobs", "entropy")) and s.step == 1 and s,
        "log-probabilities differ for the same completions of the same model", LOGITS),
)
# fmt: on
