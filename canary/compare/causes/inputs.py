"""What is learned: the dataset, its tokens, and the batches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.inputs_stages import CHANGED_BEFORE_MODEL, EARLIER
from canary.compare.report import Difference
from canary.record.exact import Micro, TokenCount

PRINT = "print ids, labels and attention mask of one row of the first batch on both sides"
PREPARED = "compare dataset revision, collator, truncation, packing, shuffling and seed"
ORDER = "compare seed, sampler, shuffling and the random numbers of data workers"
DRAWN = "compare what draws random numbers: for a row, for the order, in an evaluation or a log"
PARTED = "Other code may have drawn random numbers before"
SOURCE = re.compile(
    r"(train_?)?(data(set)?|files?)s?_?(name|path|file|dir|revision|config_name|split)?s?"
)
"""Names of settings that say where the data is."""
DATA_FILES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow")
FORMAT = (
    "print one formatted example of both sides as text and as tokens",
    "compare the tokenizer's files, the chat template and special tokens of both sides",
)
SOME = 0.2
"""Smallest share of equal sequences that counts as the same data."""
A_BOS = 0.25
"""Smallest change of BOS tokens per sequence that counts."""
SIZES_VARY = 3
"""Smallest number of different sizes of micro-batches."""
SIZES: tuple[TokenCount, ...] = ("input_tokens", "label_tokens", "sequences")
ROW_SETTINGS = (
    *("gradient_accumulation_steps", "per_device_train_batch_size", "batch_size"),
    *("world_size", "nproc"),
)
"""Settings that set the rows of a step."""


def entered(facts: Facts) -> list[Difference]:
    """Return the differences of data and batches, if they come first and the loop did not generate
    them."""
    generated = facts.rollout and facts.batches.known and facts.batches.same_prompts
    reached = facts.differences("batches") or facts.unrecorded(("batches",))
    if facts.entry not in ("data", "batches") or generated or not reached:
        return []
    return [*facts.differences("data"), *facts.differences("batches")][:4]


def more(facts: Facts, name: TokenCount) -> int:
    """Return how many more such tokens the steps have."""
    was, now = facts.exact_count(name)
    return now - was


def _labels_gone(facts: Facts) -> bool:
    """Whether no label is left, or others than EOS went as well."""
    left = facts.exact_count("label_tokens")[1]
    gone, ends = -more(facts, "label_tokens"), -more(facts, "eos_labels")
    return gone > 0 and (left == 0 or gone > ends > 0)


def _eos_alone(facts: Facts) -> bool:
    """Whether only EOS tokens were added or removed: the texts are equal, and the tokens changed by
    as many as EOS. Without texts, the counts must agree in each micro-batch."""
    batches, eos = facts.batches, more(facts, "eos_labels")
    if not eos or eos != more(facts, "input_tokens"):
        return False
    if batches.texts_known:
        return batches.same_texts
    names: tuple[TokenCount, ...] = ("eos_labels", "input_tokens", "label_tokens", "sequences")
    changes = ([now.get(n, 0) - was.get(n, 0) for n in names] for was, now in _micro(facts))
    return all(eos == tokens == labels and not rows for eos, tokens, labels, rows in changes)


def _micro(facts: Facts) -> list[tuple[Micro, Micro]]:
    """Return the micro-batches at the same places of both sides."""
    steps = zip(*facts.looked_batches(), strict=False)
    return [pair for step in steps for pair in zip(*step, strict=False)]


def _of_eos(facts: Facts) -> str:
    was, now = facts.exact_count("eos_labels")
    how = "no longer appended" if now == 0 else ("dropped" if now < was else "added")
    return f"EOS is {how}: {was:,} -> {now:,}"


def _of_other_size(facts: Facts) -> str:
    """Describe steps with another number of rows, with the setting that says so."""
    was, now = facts.batches.rows_per_step or (0, 0)
    much = "fewer" if now < was else f"{now / was:.3g} times as many"
    settings = [change for change in facts.settings if change.name in ROW_SETTINGS]
    settings.sort(key=lambda change: change.baseline is None)  # an option may not be set
    of = f" ({settings[0].sentence()})" if settings else ""
    other = "" if facts.batches.shared >= SOME else ". The sequences differ too"
    return f"each step has {much} rows: {was:,} -> {now:,}{of}{other}"


def _tokenizer(facts: Facts) -> list[Difference]:
    return [d for d in facts.differences("data") if d.signal.startswith("tokenizer")][:3]


def _other_tokenizer(facts: Facts) -> str:
    part = _tokenizer(facts)[0].signal.removeprefix("tokenizer.")
    what = {
        "chat_template_sha256": "the chat template changed",
        "vocab_sha256": "the tokenizer's vocabulary changed",
        "pipeline_sha256": "the tokenizer's processing around its vocabulary changed",
    }.get(part, f"the tokenizer's {part.replace('.', ' ')} changed")
    if not entered(facts):
        return what
    was, now = facts.exact_count("label_tokens")
    labels = f" ({was:,} -> {now:,} label tokens)" if was != now else ""
    return f"{what}, and the model gets different tokens{labels}"


def _only_labels(facts: Facts) -> bool:
    """Whether equal ids reached the model, or the model generated what differs."""
    same = bool(entered(facts)) and facts.batches.same_rows
    return same or (facts.rollout and facts.batches.same_prompts)


def _other_ids(facts: Facts) -> list[Difference]:
    """Return the difference if sequences differ by more than order and EOS, and no tokenizer."""
    batches = facts.batches
    same = batches.same_multiset or (facts.rollout and batches.same_prompts)
    if not entered(facts) or not batches.known or same or _tokenizer(facts):
        return []
    if _other_mask(facts) or _eos_alone(facts):
        return []
    return facts.differences("batches")[:1]


def _other_bos(facts: Facts) -> object:
    """Whether the sequences differ by BOS, and by at most as many other tokens."""
    bos, rows = facts.exact_count("bos_tokens"), facts.exact_count("sequences")
    others = more(facts, "input_tokens") - more(facts, "bos_tokens")
    if rows[0] == rows[1] and abs(others) > rows[0]:
        return []
    was, now = (count / (of or 1) for count, of in zip(bos, rows, strict=True))
    words = f"BOS tokens per sequence {was:.2f} -> {now:.2f}"
    found = _other_ids(facts) if abs(now - was) >= A_BOS else []
    return found and [*found, Evidence("signal", words, was, now)]


def _same_texts(facts: Facts) -> object:
    same = facts.batches.same_texts or (facts.rollout and facts.batches.same_prompt_texts)
    words = "the decoded text is equal without special tokens and spaces"
    return same and (found := _other_ids(facts)) and [*found, Evidence("signal", words)]


def _done_in(facts: Facts) -> str:
    """Return the count: calls in each step, or passes over the dataset."""
    calls = facts.rose("tokenizer_calls")
    steps = max((launch.steps for launch in facts.now.launches), default=1)
    in_steps = calls is not None and not facts.rose("dataset_maps") and (calls.delta or 0) >= steps
    return "tokenizer_calls" if in_steps else "dataset_maps"


def _data(test: Callable[[Facts], object], says: str | Callable[[Facts], str], *advice: str) -> Row:
    """Return a row on rows that both sides recorded; more tokens are also more work."""
    return Row(
        C.DATA,
        lambda f: f.batches.known and test(f) and entered(f),
        says,
        (*advice, PRINT, PREPARED),
        strength=0.92,
        sign=lambda f: "input_tokens" if more(f, "input_tokens") > 0 else "",
        group="batches",
    )


def _kept(facts: Facts, *names: TokenCount) -> bool:
    """Whether each micro-batch keeps its shapes and these counts. It tells nothing if few differ
    from each other."""
    found = [[(_shapes(micro), *map(micro.get, names)) for micro in pair] for pair in _micro(facts)]
    equal = all(was == now for was, now in found)
    return equal and len({repr(was) for was, _ in found}) >= SIZES_VARY


def _shapes(micro: Micro) -> dict[str, list[int]]:
    """Return the shapes without those of masks: one side may have none."""
    return {name: one for name, one in micro.get("shapes", {}).items() if "mask" not in name}


def _other_mask(facts: Facts) -> bool:
    """Whether the mask of padding covers other positions of all batches, which are equally large.
    If all have one size, equal labels must show it. One BOS or EOS per sequence is no mask."""
    moved = all(
        was.get("input_tokens") != now.get("input_tokens")
        for was, now in _micro(facts)
        if was.get("pad_tokens") or now.get("pad_tokens")
    )
    sequences, pads = (facts.exact_count(name)[1] for name in ("sequences", "pad_tokens"))
    special = (abs(more(facts, name)) for name in ("eos_labels", "bos_tokens"))
    if not moved or any(0 < count <= sequences for count in special):
        return False
    as_before = facts.batches.same_texts or pads == 0
    sizes = _kept(facts, "sequences") or (as_before and _kept(facts, "sequences", "label_tokens"))
    return sizes and more(facts, "input_tokens") != 0


def _mask(facts: Facts) -> str:
    pads = facts.exact_count("pad_tokens")[1]
    grown = "more positions" if pads else "the padding too"
    how = grown if more(facts, "input_tokens") > 0 else "fewer positions"
    return f"the attention mask covers {how}, in batches of the same size"


def _other_source(facts: Facts) -> str:
    """Return what names another source of the data: a setting or a changed file; or ""."""
    named = (one.sentence() for one in facts.settings if SOURCE.fullmatch(one.name))
    files = (one.name for one in facts.report.places.ran if one.name.endswith(DATA_FILES))
    return next(named, "") or next((f"{name} changed" for name in files), "")


def _sequences(facts: Facts) -> str:
    """Say how the sequences differ, and whether their dataset does."""
    was, now = facts.exact_count("input_tokens")
    words = "the training steps get different sequences"
    if abs(now - was) > 0.1 * was > 0:
        less = "truncated more" if facts.batches.in_place >= SOME else "shorter"
        words = f"sequences are {'longer' if now > was else less}: {was:,} -> {now:,} tokens"
    elif _kept(facts, *SIZES):
        words = "the batches have the same sizes, but other tokens"
    signals = {one.signal: one for one in facts.differences("data")}
    found = signals.get("rows") or signals.get("dataset_sha256")
    if found is None or facts.batches.shared >= SOME:
        return words
    of = f" ({found.detail})" if found.signal == "rows" else ""
    return f"{words}. The dataset is another one too, or is prepared in another way{of}"


def _from_step(facts: Facts) -> int:
    """Return the first step with other rows, from 2 on, if all was equal before; else 0."""
    step, loss = facts.batches.steps_differ_from or 0, facts.first_step("loss") or sys.maxsize
    found = facts.differences("batches")
    equal = loss >= step > 1 and found and found[0].step == step
    return step if equal and not facts.differences("data") else 0


# fmt: off
ROWS = (
    Row(C.TOKENIZATION, _tokenizer, _other_tokenizer, FORMAT, lambda f: 0.55 if _only_labels(f)
        else 0.96 if f.differences("batches") else 0.5),
    Row(C.TOKENIZATION, _other_bos, "the BOS tokens of the sequences changed: {bos_tokens}",
        ("print the first ids of one row on both sides, and find the code that puts BOS there",),
        strength=0.94, group="ids"),
    Row(C.TOKENIZATION, _same_texts,
        "the same text, but for spaces and line breaks, gives different tokens", FORMAT,
        strength=0.94, group="ids"),
    Row(C.TOKENIZATION, lambda f: [c for c in (f.rose("dataset_maps"), f.rose("tokenizer_calls"))
        if c], lambda f: ("passes over the dataset are no longer found in the cache"
        if f.rose("dataset_maps") else "the tokenizer is called more often"),
        ("look at the function given to Dataset.map: state and open objects cannot be hashed",
        "count the calls of the tokenizer in the collator"), strength=0.93, sign=_done_in),
    Row(C.DATA, lambda f: f.difference("batches", CHANGED_BEFORE_MODEL) and entered(f),
        "the loop changes the batch between the DataLoader and the model",
        ("compare the lines of the loop between the DataLoader and the model's call", PRINT),
        strength=0.95, group="batches"),
    Row(C.DATA, lambda f: f.difference("batches", EARLIER) and entered(f),
        "other values enter the model in calls before the last one of a backward",
        ("compare what enters each call of the model in the first step on both sides",),
        strength=0.92, group="batches"),
    Row(C.DATA, lambda f: not f.batches.known and entered(f),
        "the training steps get different tokens", (PRINT, PREPARED), strength=0.75,
        group="batches"),
    _data(lambda f: f.batches.same_rows and _labels_gone(f),
        "the same rows lost labels: {label_tokens}, of these EOS {eos_labels}",
        "count the rows of a batch without any label"),
    _data(lambda f: f.batches.same_rows and more(f, "eos_labels") < 0,
        "the EOS labels are masked: {eos_labels}",
        "compare the ids of padding and EOS, and what masks the labels"),
    _data(lambda f: f.batches.same_rows and more(f, "label_tokens"),
        "the loss covers different tokens: {label_tokens} label tokens"),
    _data(lambda f: f.batches.same_rows, "masks or labels differ for the same sequences"),
    _data(lambda f: f.batches.same_set_in_steps,
        "the same sequences are in different places of each batch"),
    _data(lambda f: f.batches.rows_per_step and not f.rollout, _of_other_size),
    _data(lambda f: f.batches.same_multiset and _from_step(f), lambda f: "the same sequences come "
        f"in another order from step {_from_step(f)} on. {PARTED}", DRAWN, ORDER),
    _data(lambda f: f.batches.same_multiset, "the same sequences come in another order", ORDER),
    _data(_other_mask, _mask, "compare what makes the attention mask, and the id of padding"),
    _data(_eos_alone, _of_eos, "look where EOS is added, cut off or masked"),
    _data(lambda f: f.batches.in_place < SOME <= f.batches.shared,
        "different rows of the same data are used", ORDER),
    _data(lambda f: f.exact_count("eos_labels")[1] == 0 > more(f, "eos_labels"),
        "the sequences differ and have no EOS label: {eos_labels}"),
    _data(lambda f: f.batches.shared < SOME and _other_source(f),
        lambda f: f"the data comes from another source: {_other_source(f)}"),
    _data(_from_step, lambda f: f"{_sequences(f)}, from step {_from_step(f)} on. {PARTED}", DRAWN),
    _data(lambda f: _kept(f, *SIZES) and not f.differences("data"), _sequences, DRAWN),
    _data(lambda f: True, _sequences),
    Row(C.DATA, lambda f: (f.rewards_read_other_data and [f.difference("data", "dataset_sha256"),
        f.rollout_signal]),
        "the prompts are equal, but dataset columns that the rewards read differ",
        ("compare the columns that the reward functions read: answers, labels, references",)),
    Row(C.DATA, lambda f: f.entry == "data" and not entered(f)
        and f.difference("data", "dataset_sha256"),
        "the dataset differs, but not in the rows that the look used",
        ("compare the dataset's revision and preparation",), strength=0.5),
)
# fmt: on
