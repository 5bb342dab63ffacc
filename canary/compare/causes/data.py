"""Data: other rows, another order, other labels, other lengths."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.record.exact import TokenCount

LOOK = "print the first batch of both sides: ids, labels, attention mask"

SOME = 0.2
"""Of the sequences: as many are the same when only the long ones are cut."""


def findings(facts: Facts) -> Iterator[Finding]:
    """What the batches themselves show, where the tokenizer does not explain it."""
    if facts.entry not in ("data", "batches"):
        yield from _not_reached(facts)
        return
    if facts.rollout and facts.batches.known and facts.batches.same_prompts:
        return  # completions are the model's own
    tokenizer = any(d.signal.startswith("tokenizer") for d in facts.differences("data"))
    description, strength = _what(facts)
    if tokenizer and not facts.batches.same_rows:
        strength = 0.3
    collator = facts.changed_code("data_collator", "_prepare_inputs", "get_train_dataloader")
    evidence = [evidence_of(d) for stage in ("data", "batches") for d in facts.differences(stage)]
    if collator is not None:
        evidence.append(collator.evidence())
        strength = min(0.97, strength + 0.04)
    was, now = facts.exact_counts("input_tokens")[0]
    yield Finding(
        C.DATA,
        strength,
        description,
        tuple(evidence[:4]),
        _actions(facts),
        sign="input_tokens" if now > was else "",
    )


def _not_reached(facts: Facts) -> Iterator[Finding]:
    """The dataset differs in rows that these steps did not see."""
    found = facts.difference("data", "dataset_sha256") or facts.difference("data", "rows")
    if found is None or facts.differs("batches"):
        return
    if facts.rewards_read_other_data:
        signal = facts.rollout_signal
        yield Finding(
            C.DATA,
            0.93,
            "the same prompts stand beside other columns of the dataset, and rewards read those",
            (evidence_of(found), *([evidence_of(signal)] if signal is not None else [])),
            ("compare the columns that the reward functions take: answers, labels, references",),
        )
        return
    yield Finding(
        C.DATA,
        0.4 if facts.entry in (None, "data") else 0.15,
        "the dataset differs, and not in what the probe's steps saw",
        (evidence_of(found),),
        ("compare the dataset's revision and its preparation",),
        equal=("batches",),
    )


def _what(facts: Facts) -> tuple[str, float]:
    """(one sentence, strength)."""
    batches = facts.batches
    labels, inputs, eos = facts.exact_counts("label_tokens", "input_tokens", "eos_labels")
    if not batches.known:
        return "other tokens enter the training steps", 0.75
    if batches.same_rows:
        if eos[1] < eos[0]:
            return f"the end-of-sequence labels are masked: {eos[0]:,} -> {eos[1]:,}", 0.95
        if labels[0] != labels[1]:
            return f"the loss is taken on other tokens: {labels[0]:,} -> {labels[1]:,} labels", 0.95
        return "masks or labels differ for the same sequences", 0.88
    if batches.same_set_in_steps:
        return "the same sequences are in other places of each batch", 0.95
    if batches.same_multiset:
        return "the same sequences come in another order: another seed, sampler or shuffle", 0.93
    if (ends := eos_alone(facts)) is not None:
        how = (
            "no longer appended" if ends[1] == 0 else ("dropped" if ends[1] < ends[0] else "added")
        )
        return f"the end-of-sequence token is {how}: {ends[0]:,} -> {ends[1]:,}", 0.94
    if batches.in_place >= SOME and batches.shorter and inputs[1] < inputs[0]:
        return f"long sequences are cut shorter: {inputs[0]:,} -> {inputs[1]:,} tokens", 0.9
    if batches.shared >= SOME > batches.in_place:
        return "other rows of the same data are drawn: order, seed or selection", 0.9
    if eos[0] and not eos[1]:
        return f"other sequences, and none has an end-of-sequence label: {eos[0]:,} -> 0", 0.9
    if batches.shorter and inputs[1] < inputs[0]:
        return f"other sequences, and shorter: {inputs[0]:,} -> {inputs[1]:,} tokens", 0.85
    if batches.longer and inputs[1] > inputs[0]:
        return f"sequences are longer: {inputs[0]:,} -> {inputs[1]:,} tokens", 0.8
    if batches.same_texts:
        return "the same words stand in other tokens", 0.4
    return "other sequences enter the training steps", 0.85


def eos_alone(facts: Facts) -> tuple[int, int] | None:
    """(EOS before, EOS now), where the words are the same and as many tokens came or went as EOS
    did: every other token is as it was. Of words that nobody could tell, where that holds in each
    micro-batch."""
    batches = facts.batches
    if not batches.known or (batches.texts_known and not batches.same_texts):
        return None
    eos, tokens = facts.exact_counts("eos_labels", "input_tokens")
    alone = eos[0] != eos[1] and eos[1] - eos[0] == tokens[1] - tokens[0]
    return eos if alone and (batches.same_texts or _eos_alone_in_each(facts)) else None


def _eos_alone_in_each(facts: Facts) -> bool:
    names: tuple[TokenCount, ...] = ("eos_labels", "input_tokens", "label_tokens", "sequences")
    before, after = (
        [[micro.get(name, 0) for name in names] for step in side for micro in step]
        for side in facts.probed_batches()
    )
    return all(
        now[0] - was[0] == now[1] - was[1] == now[2] - was[2] and now[3] == was[3]
        for was, now in zip(before, after, strict=False)
    )


def _actions(facts: Facts) -> tuple[str, ...]:
    if eos_alone(facts) is not None:
        return "append tokenizer.eos_token to every example before it is cut or packed", LOOK
    eos = facts.exact_counts("eos_labels")[0]
    if eos[1] < eos[0] and facts.batches.same_rows:
        return (
            "use a padding token that is not the end-of-sequence token, or mask by attention",
            LOOK,
        )
    return LOOK, "compare dataset revision, collator, truncation, packing, shuffling and seed"


def shorter_inputs(facts: Facts) -> Evidence | None:
    """Fewer tokens a step, as evidence for time and memory that fell or rose with them."""
    was, now = facts.exact_counts("input_tokens")[0]
    if was == now:
        return None
    return Evidence("signal", f"input tokens {was:,} -> {now:,} over the probe's steps", was, now)
