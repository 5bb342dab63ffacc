"""Data: different rows, order, labels or lengths."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.inputs_stages import CHANGED_BEFORE_MODEL
from canary.record.exact import TokenCount

LOOK = "print the first batch of both sides: ids, labels, attention mask"

SOME = 0.2
"""Smallest share of equal sequences that counts as the same data."""


def findings(facts: Facts) -> Iterator[Finding]:
    """Changes that the batches show, weaker if the tokenizer explains them."""
    if facts.entry not in ("data", "batches"):
        yield from _not_reached(facts)
        return
    if facts.rollout and facts.batches.known and facts.batches.same_prompts:
        return  # only completions differ, and the model generates them
    tokenizer = any(d.signal.startswith("tokenizer") for d in facts.differences("data"))
    description, strength = _what(facts)
    if tokenizer and not facts.batches.same_rows:
        strength = 0.3
    evidence = [evidence_of(d) for stage in ("data", "batches") for d in facts.differences(stage)]
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
    """The dataset differs, but not in the tokens that the steps used."""
    found = facts.difference("data", "dataset_sha256") or facts.difference("data", "rows")
    if found is None or facts.differs("batches"):
        return
    if facts.rewards_read_other_data:
        signal = facts.rollout_signal
        yield Finding(
            C.DATA,
            0.93,
            "the prompts are equal, but dataset columns that the rewards read differ",
            (evidence_of(found), *([evidence_of(signal)] if signal is not None else [])),
            ("compare the columns that the reward functions read: answers, labels, references",),
        )
        return
    yield Finding(
        C.DATA,
        0.4 if facts.entry in (None, "data") else 0.15,
        "the dataset differs, but not in the rows that the look used",
        (evidence_of(found),),
        ("compare the dataset's revision and preparation",),
        equal=("batches",),
    )


def _what(facts: Facts) -> tuple[str, float]:
    """Return (description, strength)."""
    batches = facts.batches
    if facts.difference("batches", CHANGED_BEFORE_MODEL) is not None:
        return "the loop changes the batch between the DataLoader and the model", 0.95
    labels, inputs, eos = facts.exact_counts("label_tokens", "input_tokens", "eos_labels")
    drawn = OTHER_START if facts.difference("model", "parameters_sha256") else ""
    if not batches.known:
        return "the training steps get different tokens", 0.75
    if batches.same_rows:
        if eos[1] < eos[0]:
            return f"the end-of-sequence labels are masked: {eos[0]:,} -> {eos[1]:,}", 0.95
        if labels[0] != labels[1]:
            change = f"{labels[0]:,} -> {labels[1]:,} label tokens"
            return f"the loss covers different tokens: {change}", 0.95
        return "masks or labels differ for the same sequences", 0.88
    if batches.same_set_in_steps:
        return "the same sequences are in different places of each batch", 0.95
    if batches.rows_per_step is not None and not facts.rollout:
        return _of_other_size(facts, batches.rows_per_step), 0.95
    if batches.same_multiset:
        return f"the same sequences are reordered: check seed, sampler and shuffling{drawn}", 0.93
    if (ends := eos_alone(facts)) is not None:
        how = (
            "no longer appended" if ends[1] == 0 else ("dropped" if ends[1] < ends[0] else "added")
        )
        return f"the end-of-sequence token is {how}: {ends[0]:,} -> {ends[1]:,}", 0.94
    if batches.in_place >= SOME and batches.shorter and inputs[1] < inputs[0]:
        return f"long sequences are truncated more: {inputs[0]:,} -> {inputs[1]:,} tokens", 0.9
    if batches.shared >= SOME > batches.in_place:
        words = "different rows of the same data are used: check order, seed and selection"
        return f"{words}{drawn}", 0.9
    if eos[0] and not eos[1]:
        return f"the sequences differ and have no end-of-sequence label: {eos[0]:,} -> 0", 0.9
    if batches.shorter and inputs[1] < inputs[0]:
        return f"the sequences differ and are shorter: {inputs[0]:,} -> {inputs[1]:,} tokens", 0.85
    if batches.longer and inputs[1] > inputs[0]:
        return f"sequences are longer: {inputs[0]:,} -> {inputs[1]:,} tokens", 0.8
    if batches.same_texts:
        return "the same text has different tokens", 0.4
    return "the training steps get different sequences", 0.85


OTHER_START = (
    ". The initial parameters differ too: if the model's initialization changed, it may draw other "
    "random numbers before the data order"
)
SIZES = (
    "gradient_accumulation_steps",
    "per_device_train_batch_size",
    "batch_size",
    "world_size",
    "nproc",
)
"""Settings that set the rows of a step."""


def _of_other_size(facts: Facts, rows: tuple[int, int]) -> str:
    """Describe steps with another number of rows, with the setting that says so."""
    was, now = rows
    much = "fewer" if now < was else f"{now / was:.3g} times as many"
    settings = [change for change in facts.settings if change.name in SIZES]
    settings.sort(key=lambda change: change.baseline is None)  # an option may not be set
    of = f" ({settings[0].sentence()})" if settings else ""
    other = "" if facts.batches.shared >= SOME else ". The sequences differ too"
    return f"each step has {much} rows: {was:,} -> {now:,}{of}{other}"


def eos_alone(facts: Facts) -> tuple[int, int] | None:
    """Return (EOS before, EOS now) if only EOS tokens were added or removed, else None.

    The texts must be equal, and the token count must change by as many as EOS. Without texts, the
    counts must agree in each micro-batch.
    """
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
        for side in facts.looked_batches()
    )
    return all(
        now[0] - was[0] == now[1] - was[1] == now[2] - was[2] and now[3] == was[3]
        for was, now in zip(before, after, strict=False)
    )


def _actions(facts: Facts) -> tuple[str, ...]:
    if facts.difference("batches", CHANGED_BEFORE_MODEL) is not None:
        return (
            "compare the lines of the loop between the DataLoader and the model's call",
            "print what enters the model in step 1 of both sides: ids, labels, masks",
        )
    if eos_alone(facts) is not None:
        return "append tokenizer.eos_token to every example before truncation and packing", LOOK
    eos = facts.exact_counts("eos_labels")[0]
    if eos[1] < eos[0] and facts.batches.same_rows:
        return (
            "use a padding token that is not the end-of-sequence token, or mask by attention",
            LOOK,
        )
    return LOOK, "compare dataset revision, collator, truncation, packing, shuffling and seed"
