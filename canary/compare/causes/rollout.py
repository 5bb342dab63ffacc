"""Rollout: sampling, rewards, and the log-probabilities of the samples."""

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
SAMPLED_LOGITS = (
    "divide the logits by the sampling temperature, and mask tokens that were not sampled"
)


def findings(facts: Facts) -> Iterator[Finding]:
    """Changes in the order of a rollout: work, samples, rewards, log-probabilities."""
    if not facts.rollout:
        return
    yield from _work(facts)
    yield from _samples(facts)
    yield from _rewards(facts)
    yield from _logprobs(facts)
    yield from _signals(facts)


def _signals(facts: Facts) -> Iterator[Finding]:
    """Scores or log-probabilities of equal completions, if the loop recorded them."""
    signal = facts.rollout_signal
    if signal is None:
        return
    exchanged = not any(facts.metric_moved(n, signal.step or 1) for n in ("reward", "reward_std"))
    if signal.signal == "scores" and exchanged:
        yield Finding(
            C.ROLLOUT,
            0.93,
            "completions get the scores of other completions",
            (evidence_of(signal),),
            ("check the order of prompts, completions and scores: each must keep its place",),
        )
    elif signal.signal in ("logprobs", "entropy") and signal.step == 1:
        yield Finding(
            C.ROLLOUT,
            0.9,
            "log-probabilities differ for the same completions of the same model",
            (evidence_of(signal),),
            (SAMPLED_LOGITS,),
        )


def _work(facts: Facts) -> Iterator[Finding]:
    fed, generation = facts.rose("tokens_fed"), facts.grown_phase("generation", "reward")
    learned = facts.entry is not None
    if fed is not None:
        # Without a cache, the same number of forward passes gets more tokens.
        more = facts.more_forwards
        yield Finding(
            C.ROLLOUT,
            0.35 if learned or more else 0.95,
            "generation feeds more tokens for the same completions: it recomputes earlier ones",
            (evidence_of_check(fed), *([evidence_of_phase(generation)] if generation else [])),
            ("enable the KV cache for generation (use_cache)", *GENERATION),
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
    """The completions differ for the same prompts and parameters, or were never sampled."""
    unsampled = facts.failed("sampled_ids_trained")
    if facts.batches.unmasked:
        yield from _past_the_end(facts)
        return
    if unsampled is not None:
        yield Finding(
            C.ROLLOUT,
            0.9,
            "the steps train on completions that were never sampled",
            (evidence_of_check(unsampled),),
            ("train on the sampled ids; do not decode and tokenize them again",),
        )
    others = facts.batches.known and not facts.batches.same_rows
    if facts.entry in ("data", "batches") and others and facts.batches.same_prompts:
        yield Finding(
            C.ROLLOUT,
            0.92,
            "the same prompts and parameters give different completions",
            tuple(evidence_of(d) for d in facts.differences("batches")[:1]),
            (*GENERATION, "compare the seed, and other code that draws random numbers"),
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
                "equal parameters give different completions at step 2",
                (evidence_of(sampled),),
                GENERATION,
            )


def _past_the_end(facts: Facts) -> Iterator[Finding]:
    """The completions are equal, but their mask differs."""
    unsampled, more = facts.failed("sampled_ids_trained"), facts.batches.unmasked
    (was, now), (ended, _) = facts.exact_counts("pad_tokens", "eos_labels")
    same = f"step 1 sampled the same completions, but trains on {more} more of their tokens"
    pads = f"{was - now} fewer padded positions are masked over all steps"
    yield Finding(
        C.ROLLOUT,
        0.95,
        "tokens after a completion's first EOS are trained: the completions are equal, but their "
        "mask differs"
        if ended
        else "the completions are equal, but their mask includes more tokens",
        (
            *(evidence_of(d) for d in facts.differences("batches")[:1]),
            Evidence("signal", f"{same}; {pads}" if was > now else same),
            *([evidence_of_check(unsampled)] if unsampled else []),
        ),
        ("check the mask of completions: it must end with the first EOS and exclude padding",),
    )


def _rewards(facts: Facts) -> Iterator[Finding]:
    if facts.advantages == "exchanged" and facts.entry == "first_loss":
        yield Finding(
            C.ROLLOUT,
            0.93,
            "completions get the rewards of other completions",
            (
                *facts.first_evidence(),
                Evidence("signal", "the step's advantages are equal, but of other completions"),
            ),
            ("check the order of prompts, completions and rewards: each must keep its place",),
        )
        return
    flat = facts.failed("reward_varies")
    moved = facts.metric_moved("reward")
    if facts.entry == "trajectory" and facts.rollout_signal is not None:
        moved = facts.rollout_signal.signal == "scores"
    same_samples = facts.entry not in ("data", "batches", "model")
    if not same_samples or not (flat or moved):
        return
    what = "all completions get the same reward" if flat else "rewards differ for equal completions"
    evidence = [*([evidence_of_check(flat)] if flat else []), *_mean_reward(facts)]
    yield Finding(
        C.ROLLOUT,
        0.4 if facts.rewards_read_other_data else 0.95,
        what,
        tuple(evidence),
        ("call the reward function by hand on one completion of each kind",),
    )


def _mean_reward(facts: Facts) -> Iterator[Evidence]:
    """Yield the mean reward of the first step whose scores differ, or of step 1."""
    signal = facts.rollout_signal
    step = (signal.step or 1) if signal is not None else 1
    was, now = facts.metric("reward")
    if min(len(was), len(now)) >= step:
        before, after = was[step - 1], now[step - 1]
        words = f"mean reward of step {step} {_show(before)} -> {_show(after)}"
        yield Evidence("signal", words, before, after)


def _logprobs(facts: Facts) -> Iterator[Finding]:
    """The model's distribution over the same completions differs."""
    broken = facts.failed("starts_at_ratio_one")
    if broken is not None:
        yield Finding(
            C.ROLLOUT,
            0.8,
            "the trained policy is not the one that sampled",
            (evidence_of_check(broken),),
            ("use one temperature, mask, precision and dropout for old and new log-probabilities",),
        )
    if facts.entry not in ("first_loss", "first_gradient", "first_update", "trajectory"):
        return
    if not facts.metric_moved("entropy") or facts.metric_moved("reward"):
        return
    was, now = facts.metric("entropy")
    yield Finding(
        C.ROLLOUT,
        0.85,
        "log-probabilities differ for the same completions: they are not those of the sampling "
        "distribution",
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
        (SAMPLED_LOGITS,),
    )


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
