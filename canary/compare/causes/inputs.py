"""What is learned: the dataset, its tokens, and the batches."""

from __future__ import annotations

from collections.abc import Callable

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.row import Row
from canary.compare.diagnosis.suspects import RegressionCategory as C
from canary.compare.exact.inputs_stages import CHANGED_BEFORE_MODEL, EARLIER
from canary.compare.report import Difference
from canary.record.exact import Exact, TokenCount

PRINT = "print ids, labels and attention mask of one row of the first batch on both sides"
PREPARED = "compare dataset revision, collator, truncation, packing, shuffling and seed"
ORDER = "compare seed, sampler, shuffling, and what else draws random numbers"
FORMAT = (
    "print one formatted example of both sides as text and as tokens",
    "compare the tokenizer's files, the chat template and special tokens of both sides",
)
A_BOS = 0.25
"""Smallest change of BOS tokens per sequence that counts."""
SIZES: tuple[TokenCount, ...] = ("input_tokens", "label_tokens", "sequences")


def entered(facts: Facts) -> list[Difference]:
    """Return the differences of data and batches, if they come first and the loop did not generate
    them."""
    generated = facts.rollout and facts.batches.known and facts.batches.same_prompts
    reached = facts.differences("batches") or facts.unrecorded(("batches",))
    if facts.entry not in ("data", "batches") or generated or not reached:
        return []
    return [*facts.differences("data"), *facts.differences("batches")]


def more(facts: Facts, name: TokenCount) -> int:
    """Return how many more such tokens the steps have."""
    was, now = facts.exact_counts(name)[0]
    return now - was


def _tokenizer(facts: Facts) -> list[str]:
    """Return what of the tokenizer differs."""
    found = (d.signal for d in facts.differences("data"))
    return [name.partition(".")[2] for name in found if name.startswith("tokenizer")]


def _other_tokenizer(facts: Facts) -> str:
    part = _tokenizer(facts)[0].removesuffix("_sha256").replace("_", " ").replace(".", " ")
    reached = ", and the model gets different tokens" if entered(facts) else ""
    return f"the tokenizer's {part} changed{reached}"


def _strength_of_tokenizer(facts: Facts) -> float:
    """Return little if equal ids reached the model, or the model generated what differs."""
    same = bool(entered(facts)) and facts.batches.same_rows
    if same or (facts.rollout and facts.batches.same_prompts):
        return 0.55
    return 0.96 if facts.differences("batches") else 0.5


def _other_bos(facts: Facts) -> bool:
    """Whether the sequences differ by BOS, and by at most as many other tokens."""
    bos, rows, tokens = facts.exact_counts("bos_tokens", "sequences", "input_tokens")
    others = tokens[1] - tokens[0] - (bos[1] - bos[0])
    if _tokenizer(facts) or (rows[0] == rows[1] and abs(others) > rows[0]):
        return False
    was, now = (count / (of or 1) for count, of in zip(bos, rows, strict=True))
    return abs(now - was) >= A_BOS


def _same_text(facts: Facts) -> bool:
    return facts.batches.same_texts or (facts.rollout and facts.batches.same_prompt_texts)


def _around_text(facts: Facts) -> bool:
    """Whether only EOS or the mask of padding changed: the texts are equal, and the tokens changed
    by as many as EOS, or in batches of equal shapes and labels."""
    tokens, shapes = more(facts, "input_tokens"), facts.exact(_shapes)
    only_mask = shapes[0] == shapes[1] and not more(facts, "label_tokens")
    only_eos = tokens == more(facts, "eos_labels")
    return _same_text(facts) and tokens != 0 and (only_eos or only_mask)


def _shapes(exact: Exact) -> list[list[int] | None]:
    micro_batches = (micro for step in exact.get("batches", []) for micro in step)
    return [micro.get("shapes", {}).get("input_ids") for micro in micro_batches]


def _sequences(facts: Facts) -> str:
    sizes = facts.exact_counts(*SIZES)
    if all(was == now for was, now in sizes) and any(map(any, sizes)):
        return "the batches have the same sizes, but other tokens"
    return "the training steps get different sequences"


def _done_in(facts: Facts) -> str:
    """Return the count: calls in each step, or passes over the dataset."""
    calls = facts.rose("tokenizer_calls")
    steps = max((launch.steps for launch in facts.now.launches), default=1)
    in_steps = calls is not None and not facts.rose("dataset_maps") and (calls.delta or 0) >= steps
    return "tokenizer_calls" if in_steps else "dataset_maps"


def _batches(
    test: Callable[[Facts], object],
    says: str | Callable[[Facts], str],
    *advice: str,
    category: C = C.DATA,
    strength: float = 0.92,
) -> Row:
    """Return a row on batches that differ; more tokens are also more work."""
    return Row(
        category,
        lambda f: entered(f) and test(f),
        says,
        advice or (PRINT, PREPARED),
        strength,
        sign=lambda f: "input_tokens" if f.batches.known and more(f, "input_tokens") > 0 else "",
        group="batches",
    )


# fmt: off
ROWS = (
    Row(C.TOKENIZATION, _tokenizer, _other_tokenizer, FORMAT, _strength_of_tokenizer),
    Row(C.TOKENIZATION, lambda f: f.rose("dataset_maps") or f.rose("tokenizer_calls"),
        lambda f: ("passes over the dataset are no longer found in the cache"
        if f.rose("dataset_maps") else "the tokenizer is called more often"),
        ("look at the function given to Dataset.map: state and open objects cannot be hashed",
        "count the calls of the tokenizer in the collator"), 0.93, _done_in),
    _batches(lambda f: f.difference("batches", CHANGED_BEFORE_MODEL),
        "the loop changes the batch between the DataLoader and the model",
        "compare the lines of the loop between the DataLoader and the model's call", PRINT,
        strength=0.95),
    _batches(lambda f: f.difference("batches", EARLIER),
        "other values enter the model in calls before the last one of a backward",
        "compare what enters each call of the model in the first step on both sides"),
    _batches(lambda f: not f.batches.known, "the training steps get different tokens",
        strength=0.75),
    _batches(lambda f: f.batches.same_rows,
        "labels or masks of the same sequences differ"),
    _batches(lambda f: f.batches.rows_per_step and not f.rollout,
        "each step has another number of rows: "
        "{f.batches.rows_per_step[0]:,} -> {f.batches.rows_per_step[1]:,}"),
    _batches(lambda f: f.batches.same_multiset, "the same sequences come in another order", ORDER,
        PREPARED),
    _batches(_other_bos, "the BOS tokens of the sequences changed: {bos_tokens}",
        "print the first ids of one row on both sides, and find the code that puts BOS there",
        category=C.TOKENIZATION, strength=0.94),
    _batches(_around_text, "EOS or the attention mask of the same texts changed",
        "look where EOS is added, cut off or masked, and what makes the attention mask", PRINT),
    _batches(lambda f: _same_text(f) and not _tokenizer(f),
        "the same text, but for spaces and line breaks, gives different tokens", *FORMAT,
        category=C.TOKENIZATION, strength=0.94),
    _batches(lambda f: True, _sequences, PRINT, PREPARED, ORDER),
    Row(C.DATA, lambda f: f.rewards_read_other_data,
        "the prompts are equal, but dataset columns that the rewards read differ",
        ("compare the columns that the reward functions read: answers, labels, references",)),
    Row(C.DATA, lambda f: f.entry == "data" and not entered(f)
        and f.difference("data", "dataset_sha256"),
        "the dataset differs, but not in the rows that the look used",
        ("compare the dataset's revision and preparation",), 0.5),
)
# fmt: on
