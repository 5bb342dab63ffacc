"""Rollout: sampling, rewards, and the log-probabilities of what was sampled."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import (
    Finding,
    evidence_of,
    evidence_of_check,
    evidence_of_phase,
)
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C

GENERATION = (
    "compare the generation settings: temperature, top_p, top_k, lengths, stop tokens, use_cache",
)


def findings(facts: Facts) -> Iterator[Finding]:
    """In the order of a rollout: work, samples, rewards, log-probabilities."""
    if not facts.rollout:
        return
    yield from _work(facts)
    yield from _samples(facts)
    yield from _rewards(facts)
    yield from _logprobs(facts)
    yield from _signals(facts)


def _signals(facts: Facts) -> Iterator[Finding]:
    """Scores and log-probabilities of equal completions, where a loop tells of them."""
    signal = facts.rollout_signal
    if signal is None:
        return
    exchanged = not any(facts.metric_moved(n, signal.step or 1) for n in ("reward", "reward_std"))
    if signal.signal == "scores" and exchanged:
        code = facts.changed_code("reward_funcs", "scorer")
        yield Finding(
            C.ROLLOUT,
            0.93,
            "completions are credited with the scores of others",
            (evidence_of(signal), *([code.evidence()] if code else [])),
            ("look at what orders prompts, completions and scores: each must keep its place",),
        )
    elif signal.signal in ("logprobs", "entropy") and signal.step == 1:
        yield Finding(
            C.ROLLOUT,
            0.9,
            "the same completions of the same model have other log-probabilities",
            (evidence_of(signal),),
            ("divide the logits by the sampling temperature, and mask what was not sampled",),
        )


def _work(facts: Facts) -> Iterator[Finding]:
    fed, generation = facts.rose("tokens_fed"), facts.grown_phase("generation", "reward")
    learned = facts.entry is not None
    if fed is not None:
        # Without a cache each forward is fed more; more forwards are another matter.
        more = facts.more_forwards
        yield Finding(
            C.ROLLOUT,
            0.35 if learned or more else 0.95,
            "the same completions cost more token positions: generation computes again what it had",
            (evidence_of_check(fed), *([evidence_of_phase(generation)] if generation else [])),
            ("switch the KV cache on while generating (use_cache)", *GENERATION),
            sign="tokens_fed",
        )
    elif generation is not None and not learned:
        what = "rewards take" if generation.phase == "reward" else "generation takes"
        yield Finding(
            C.ROLLOUT,
            0.85,
            f"{what} longer",
            (evidence_of_phase(generation),),
            ("profile the reward function" if generation.phase == "reward" else GENERATION[0],),
            sign=generation.phase,
        )


def _samples(facts: Facts) -> Iterator[Finding]:
    """From the same prompts and parameters, other completions."""
    stranger = facts.failed("sampled_ids_trained")
    if facts.batches.unmasked:
        yield from _past_the_end(facts)
        return
    if stranger is not None:
        yield Finding(
            C.ROLLOUT,
            0.9,
            "completions are trained that were never sampled",
            (evidence_of_check(stranger),),
            ("train on the sampled ids themselves; do not decode and tokenize them again",),
        )
    others = facts.batches.known and not facts.batches.same_rows
    if facts.entry in ("data", "batches") and others and facts.batches.same_prompts:
        yield Finding(
            C.ROLLOUT,
            0.92,
            "the same prompts and parameters give other completions",
            tuple(evidence_of(d) for d in facts.differences("batches")[:1]),
            (*GENERATION, "compare the seed, and who else draws random numbers"),
        )
    first = facts.batches.steps_differ_from
    sampled = facts.difference("trajectory", "sampled completions")
    loss = facts.first_step("losses")
    if facts.entry == "trajectory" and sampled is not None and first is not None:
        alone = loss is None or first <= loss
        same = facts.same_parameters_after_first_update
        if alone and (first == 2 and same is not False):
            yield Finding(
                C.ROLLOUT,
                0.85,
                "equal parameters give other completions at step 2",
                (evidence_of(sampled),),
                GENERATION,
            )


def _past_the_end(facts: Facts) -> Iterator[Finding]:
    """The same completions under another mask."""
    stranger, more = facts.failed("sampled_ids_trained"), facts.batches.unmasked
    (was, now), (ended, _) = facts.exact_counts("pad_tokens", "eos_labels")
    same = f"step 1 sampled the same completions, and trains {more} tokens more of them"
    pads = f"{was - now} padded positions fewer are masked over all steps"
    yield Finding(
        C.ROLLOUT,
        0.95,
        "tokens after a completion's first EOS are trained: the same completions are sampled, and "
        "their mask is another"
        if ended
        else "the same completions are sampled, and their mask holds more tokens",
        (
            *(evidence_of(d) for d in facts.differences("batches")[:1]),
            Evidence("signal", f"{same}; {pads}" if was > now else same),
            *([evidence_of_check(stranger)] if stranger else []),
        ),
        ("look at the mask of completions: it ends with the first EOS, and leaves out the pads",),
    )


def _rewards(facts: Facts) -> Iterator[Finding]:
    if facts.advantages == "exchanged" and facts.entry == "first_loss":
        code = facts.changed_code("reward_funcs")
        yield Finding(
            C.ROLLOUT,
            0.93,
            "completions are credited with the rewards of others",
            (
                *facts.first_evidence(),
                Evidence("signal", "the same advantages stand at other completions of the step"),
                *([code.evidence()] if code else []),
            ),
            ("look at what orders prompts, completions and rewards: each must keep its place",),
        )
        return
    flat = facts.failed("reward_varies")
    moved = facts.metric_moved("reward")
    if facts.entry == "trajectory" and facts.rollout_signal is not None:
        moved = facts.rollout_signal.signal == "scores"
    same_samples = facts.entry not in ("data", "batches", "model")
    code = facts.changed_code("reward_funcs", "scorer")
    if not same_samples or not (flat or moved):
        return
    what = "every completion earns the same" if flat else "the same completions earn other rewards"
    evidence = [*([evidence_of_check(flat)] if flat else []), *_mean_reward(facts)]
    if code is not None:
        evidence.append(code.evidence())
    yield Finding(
        C.ROLLOUT,
        0.4 if facts.rewards_read_other_data else 0.95,
        what,
        tuple(evidence),
        ("call the reward function by hand on one completion of each kind",),
    )


def _mean_reward(facts: Facts) -> Iterator[Evidence]:
    """Of the first step at which scores differ, or the first at all."""
    signal = facts.rollout_signal
    step = (signal.step or 1) if signal is not None else 1
    was, now = facts.metric("reward")
    if min(len(was), len(now)) >= step:
        before, after = was[step - 1], now[step - 1]
        words = f"mean reward of step {step} {_show(before)} -> {_show(after)}"
        yield Evidence("signal", words, before, after)


def _logprobs(facts: Facts) -> Iterator[Finding]:
    """The same completions of the same model, and another distribution over them."""
    broken = facts.failed("starts_at_ratio_one")
    if broken is not None:
        yield Finding(
            C.ROLLOUT,
            0.8,
            "the policy that is trained is not the one that sampled",
            (evidence_of_check(broken),),
            ("compute old and new log-probabilities alike: temperature, mask, precision, dropout",),
        )
    if facts.entry not in ("first_loss", "first_gradient", "first_update", "trajectory"):
        return
    if not facts.metric_moved("entropy") or facts.metric_moved("reward"):
        return
    was, now = facts.metric("entropy")
    yield Finding(
        C.ROLLOUT,
        0.85,
        "the same completions have other log-probabilities: those of another distribution than "
        "they were sampled from",
        (
            *facts.first_evidence(),
            Evidence(
                "signal",
                f"entropy of step 1 {_show(was[0])} -> {_show(now[0])}, with equal samples and "
                "parameters",
                was[0],
                now[0],
                "nats",
            ),
        ),
        ("divide the logits by the sampling temperature, and mask what was not sampled",),
    )


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
