"""Tokenization: other ids for the same text, another chat template, or repeated work."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.causes.data import eos_alone
from canary.compare.diagnosis.evidence import Finding, evidence_of, evidence_of_check
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C


def findings(facts: Facts) -> Iterator[Finding]:
    """Changes of the tokenizer, of ids for the same text, or work that a cache used to save."""
    yield from _tokenizer(facts)
    yield from _other_ids(facts)
    yield from _done_again(facts)


def _tokenizer(facts: Facts) -> Iterator[Finding]:
    changed = [d for d in facts.differences("data") if d.signal.startswith("tokenizer")]
    if not changed:
        return
    part = changed[0].signal.removeprefix("tokenizer.")
    what = {
        "chat_template_sha256": "the chat template changed",
        "vocab_sha256": "the tokenizer's vocabulary changed",
        "pipeline_sha256": "the tokenizer's processing around its vocabulary changed",
    }.get(part, f"the tokenizer's {part.replace('.', ' ')} changed")
    reached = facts.entry in ("data", "batches") and facts.differs("batches")
    # With equal ids, only labels or masks differ.
    only_labels = reached and facts.batches.same_rows
    only_samples = facts.rollout and facts.batches.same_prompts
    strength = 0.55 if only_labels or only_samples else (0.96 if reached else 0.5)
    yield Finding(
        C.TOKENIZATION,
        strength,
        f"{what}, and the model gets different tokens" if reached else what,
        tuple(evidence_of(d) for d in changed[:3]),
        (
            "compare the tokenizer's files and the chat template of both commits",
            "print one formatted example of each side",
        ),
    )


def _other_ids(facts: Facts) -> Iterator[Finding]:
    """The tokenizer is the same, but the same text gets other tokens, or more around it."""
    if any(d.signal.startswith("tokenizer") for d in facts.differences("data")):
        return
    if facts.entry not in ("data", "batches") or not facts.batches.known:
        return
    if facts.batches.same_multiset or (facts.rollout and facts.batches.same_prompts):
        return
    if eos_alone(facts) is not None:
        return  # only EOS was added or removed: the text has the same tokens
    same_texts = facts.batches.same_texts or (facts.rollout and facts.batches.same_prompt_texts)
    bos = facts.exact_counts("bos_tokens", "sequences")
    per_sequence = [count / (sequences or 1) for count, sequences in zip(*bos, strict=True)]
    extra = per_sequence[1] - per_sequence[0]
    if not same_texts and abs(extra) < 0.25:
        return
    evidence = [evidence_of(d) for d in facts.differences("batches")[:1]]
    words = "the same text gives different tokens"
    if abs(extra) >= 0.25:
        words = f"each sequence has {'more' if extra > 0 else 'fewer'} BOS tokens"
        was, now = per_sequence
        evidence.append(
            Evidence("signal", f"BOS tokens per sequence {was:.2f} -> {now:.2f}", was, now)
        )
    else:
        evidence.append(
            Evidence("signal", "the decoded text is equal without special tokens and spaces")
        )
    yield Finding(
        C.TOKENIZATION,
        0.9,
        words,
        tuple(evidence),
        (
            "look at special tokens, add_special_tokens and the chat template",
            "if a text already has special tokens, tokenize it without adding them",
        ),
    )


def _done_again(facts: Facts) -> Iterator[Finding]:
    maps, calls = facts.rose("dataset_maps"), facts.rose("tokenizer_calls")
    counted = [check for check in (maps, calls) if check is not None]
    if not counted:
        return
    strength = 0.93 if facts.entry is None else 0.35
    what = (
        "passes over the dataset are no longer found in the cache"
        if maps
        else "the tokenizer is called more often"
    )
    startup = _startup(facts)
    yield Finding(
        C.TOKENIZATION,
        strength,
        what,
        (*map(evidence_of_check, counted), *([startup] if startup else [])),
        (
            "give Dataset.map a function that can be hashed: no state, no open objects",
            "tokenize once, before training, and not in the collator",
        ),
        sign="tokenizer_calls" if _in_steps(facts) else "dataset_maps",
    )


def _in_steps(facts: Facts) -> bool:
    """Return whether the tokenizer is called in each step, not in a pass over the dataset."""
    calls = facts.rose("tokenizer_calls")
    steps = max(launch.steps for launch in facts.now.launches) if facts.now.launches else 1
    return calls is not None and not facts.rose("dataset_maps") and (calls.delta or 0) >= steps


def _startup(facts: Facts) -> Evidence | None:
    was, now = (record.perf.startup_seconds.get("build") for record in (facts.before, facts.now))
    if was is None or now is None or now < 1.2 * was:
        return None
    return Evidence("phase", f"building the trainer took {was:.1f} -> {now:.1f} s", was, now, "s")
