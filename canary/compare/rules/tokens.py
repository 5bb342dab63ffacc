"""Tokens and labels: ends, beginnings, prompts, and what a chat template writes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import (
    argument,
    micro_batches,
    special,
    trainer_of,
    whole_number,
    width,
    without_bos,
    without_tokens,
)
from canary.compare.rules.rule import Answer, answer, holds, not_asked, only_for, rule
from canary.errors import counted
from canary.record.exact import TORCH_LOOP, Micro
from canary.record.types import RunRecord

GUESSED = "the tokenizer is unknown, and EOS comes from the model's config"
PER_TOKEN = ("orpo", "cpo")
"""Trainers whose log-probabilities of an answer are divided by its labels."""
NO_TEMPLATE = "there is no chat template, so nothing shows how the model will be asked"
PARTS = "most rows are equally long: are these parts of longer texts?"


@rule(
    "labels_contain_eos",
    "labels contain EOS",
    "answers that are not cut, and a tokenizer with EOS",
    "let the collator mask padding by the attention mask, not by the id of EOS; end each answer "
    "with EOS",
    "https://github.com/huggingface/transformers/issues/23530",
)
def labels_contain_eos(record: RunRecord) -> Answer:
    """Without EOS in its labels, the model never learns to stop."""
    micro = micro_batches(record)
    if is_rollout(record):
        return only_for("answers that are given")
    if trainer_of(record).classifies:
        return only_for("trainings with labels of tokens")
    if not any("label_tokens" in one for one in micro):
        return without_tokens(record, "labels were not recorded")
    guessed = not record.exact.get("data", {}).get("tokenizer")
    if "eos_labels" not in micro[0] or (special(record, "eos") is None and not guessed):
        return not_asked("no EOS token is known")
    count = sum(m.get("eos_labels", 0) for m in micro)
    limit = whole_number(record, "max_length")
    if not count and limit and min(map(width, micro)) >= limit:
        return not_asked("every batch is cut at max_length")
    if not count and (stops := sum(m.get("stop_labels", 0) for m in micro)):
        return holds(f"{stops} labels are tokens at which generation stops", value=stops)
    labels = sum(m.get("label_tokens", 0) for m in micro)
    words = f"{count} EOS among {labels} label tokens"
    if count == 0 and not guessed:
        words += ": the model will never learn to stop"
    return answer(
        words, broken=count == 0, value=count, doubt=GUESSED if guessed else _other_text(record)
    )


def _other_text(record: RunRecord) -> str:
    """Return a hint that the labels are not answers with an end; empty without one."""
    if special(record, "mask") is not None:
        return "the tokenizer has a mask token: is this a masked language model?"
    seen = [micro.get("eos_inputs") for micro in micro_batches(record)]
    if seen and not any(count is None or count for count in seen):
        return "no input has EOS either: is this plain text without EOS?"
    return ""


@rule(
    "rows_have_labels",
    "each row has a label",
    "a loss on tokens whose labels were seen",
    "raise max_length, or compare the template's mark of an answer with the ids of a row: where no "
    "answer is found, everything is masked",
    "https://github.com/huggingface/trl/issues/588",
    fatal=True,
)
def rows_have_labels(record: RunRecord) -> Answer:
    """A row whose labels are all -100 teaches nothing."""
    if is_rollout(record):
        return only_for("answers that are given")
    micro = [m for m in micro_batches(record) if "learned_rows" in m]
    rows = sum(m["learned_rows"] for m in micro)
    if not rows:
        return without_tokens(record, "no row of tokens with labels was seen")
    empty = [m.get("rows_without_labels", 0) for m in micro]
    if sum(empty) == rows:
        losses = record.exact.get("trajectory", {}).get("losses", [])
        if any(loss is not None and math.isfinite(loss) and loss != 0 for loss in losses):
            return not_asked("no row has labels, but the loss has a value: it reads something else")
        return answer(f"no label is left in any of {rows} rows", broken=True, size=rows, value=rows)
    if special(record, "mask") is not None:
        return not_asked("the tokenizer has a mask token: a row may have no masked token by chance")
    words = f"{sum(empty)} of {rows} rows have no label"
    place = next((f"micro-batch {at}" for at, count in enumerate(empty, start=1) if count), "")
    doubt = "the other rows have labels: are these cut before their answers?"
    lost = sum(empty)
    value = f"{lost} of {rows} empty"
    return answer(words, broken=bool(lost), size=lost, value=value, place=place, doubt=doubt)


@rule(
    "pair_labels",
    "the labels of a preference pair do not cover its prompt",
    "batches with prompts, pairs and labels; broken for ORPO and CPO, whose scores are means",
    "mask the prompt's tokens in the labels with -100",
    "https://github.com/huggingface/trl/issues/1507",
)
def pair_labels(record: RunRecord) -> Answer:
    """The labels of a pair leave its prompt out.

    In a sum of log-probabilities, as in DPO, the prompt of both sides cancels. A mean does not.
    """
    micro = [one for one in micro_batches(record) if one.get("prompt_tokens")]
    if not micro:
        return only_for("pairs with prompts beside them, and labels")
    of = sum(one["prompt_tokens"] for one in micro)
    count = sum(one.get("prompt_labels", 0) for one in micro)
    mean = record.config.get("training_type") in PER_TOKEN
    return answer(
        f"{count} of {of} prompt tokens of pairs are in their labels",
        broken=bool(count),
        size=count,
        value=count,
        doubt="" if mean else "do the prompts of both sides cancel in the loss?",
    )


@rule(
    "pairs_differ",
    "the two answers of a preference pair differ",
    "a trainer of pairs, whose chosen rows come before the rejected ones; broken if all are equal",
    "look where chosen and rejected are read, and at what truncation leaves of both",
)
def pairs_differ(record: RunRecord) -> Answer:
    """A pair of equal answers has margin 0, so it trains nothing."""
    if trainer_of(record).rows != "pair":
        return only_for("trainings on preference pairs")
    pairs: list[tuple[str, str]] = []
    for micro in micro_batches(record):
        rows = micro.get("rows", {}).get("input_ids", [])
        pairs += zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=False)
    if not pairs:
        return not_asked("the rows of the pairs were not seen")
    same = sum(chosen == rejected for chosen, rejected in pairs)
    words = f"{same} of {counted(len(pairs), 'pair')} have two equal answers"
    doubt = "" if same == len(pairs) else "such a pair teaches nothing"
    return answer(words, broken=bool(same), size=same, value=same, doubt=doubt)


@rule(
    "at_most_one_bos",
    "a sequence has at most one BOS",
    "a BOS of its own, and rows that are not packed",
    "tokenize rendered chats with add_special_tokens=False",
    "https://github.com/huggingface/trl/issues/1400",
)
def at_most_one_bos(record: RunRecord) -> Answer:
    """A second BOS comes from tokenizing a text to which a chat template already added BOS."""
    bos = special(record, "bos")
    micro = [m for m in micro_batches(record) if "bos_most_in_a_sequence" in m]
    if bos is None or not micro:
        return without_bos(record)
    if bos in (special(record, "eos"), special(record, "pad")):
        return not_asked("BOS is also EOS or pad")
    if argument(record, "packing", False) or argument(record, "padding_free", False):
        return only_for("rows that are not packed")
    most = max(m["bos_most_in_a_sequence"] for m in micro)
    if not most:
        return not_asked("no row has BOS")
    doubt, items = "", tuple[str, ...]()
    if most > 1 and not any(m.get("pad_tokens", 1) for m in micro):
        doubt, items = "no row is padded: is this packed text?", ("BOS of packed rows",)
    elif record.config.get("trainer") == TORCH_LOOP and not any(
        m.get("rows_with_two_bos", 1) for m in micro
    ):
        doubt, items = "no row begins with two: did a model sample it?", ("BOS in the text",)
    return answer(
        f"up to {most} BOS per sequence",
        broken=most > 1,
        size=most - 1,
        value=most,
        items=items if most > 1 else (),
        doubt=doubt,
    )


@rule(
    "bos_as_tokenized",
    "rows begin with BOS as the tokenizer sets it",
    "a tokenizer and a chat template that both begin with BOS, and rows of whole texts",
    "keep the BOS that the chat template writes, or tokenize plain text with special tokens",
    "https://github.com/huggingface/alignment-handbook/issues/127",
)
def bos_as_tokenized(record: RunRecord) -> Answer:
    """Tokenizer and template begin each text with BOS, so the model is asked with BOS: rows without
    any were tokenized in another way, such as without special tokens."""
    texts = record.exact.get("facts", {}).get("texts", {})
    micro = [m for m in micro_batches(record) if "bos_tokens" in m]
    if not micro or "sets_bos" not in texts:
        return without_bos(record)
    if not texts["sets_bos"]:
        return only_for("tokenizers that set BOS")
    if not texts.get("template_sets_bos", True):
        return only_for("chat templates that write BOS")
    if (bos := special(record, "bos")) is not None and bos == special(record, "pad"):
        return not_asked("BOS is also pad")
    # A completion may hold a BOS that the model sampled.
    most = max(m.get("bos_most_in_a_sequence", 0) for m in micro)
    rows = sum(m.get("sequences", 0) for m in micro)
    words = f"rows have up to {most} BOS"
    if not most:
        words = f"the tokenizer itself sets BOS, and none of {rows} rows has one"
    doubt = "" if "template_sets_bos" in texts else NO_TEMPLATE
    if not is_rollout(record) and not _are_whole(micro):
        doubt = PARTS
    return answer(words, broken=not most, value=most, doubt=doubt)


def _are_whole(micro: Sequence[Micro]) -> bool:
    """Whether most micro-batches hold rows of their own length: parts of a text fill their rows."""
    usual, _ = Counter(map(width, micro)).most_common(1)[0]
    whole = [m for m in micro if m.get("pad_tokens") or width(m) != usual]
    return 2 * len(whole) > len(micro)


@rule(
    "closed_turns",
    "conversations end with an answer",
    "a dataset with input_ids, and a chat template with a start of answers",
    "render what is trained on without add_generation_prompt=True",
    "https://github.com/Goekdeniz-Guelmez/mlx-lm-lora/pull/83",
)
def closed_turns(record: RunRecord) -> Answer:
    """A row that is trained on ends with an answer, not with the start of another one."""
    texts = record.exact.get("facts", {}).get("texts", {})
    read, opened = texts.get("rows_read", 0), texts.get("rows_open", 0)
    if not read:
        return only_for("datasets of token ids beside a chat template")
    words = f"{opened} of {read} rows end with the start of an answer, and none follows"
    doubt = "" if 2 * opened > read else "are these cut?"
    return answer(words, broken=bool(opened), size=opened, value=opened, doubt=doubt)


@rule(
    "new_tokens_train",
    "embeddings of added tokens train",
    "a command that calls resize_token_embeddings, and a dataset with input_ids",
    "name the embeddings and the head in modules_to_save, or the tokens in trainable_token_indices",
    "https://huggingface.co/docs/peft/developer_guides/lora",
)
def new_tokens_train(record: RunRecord) -> Answer:
    """The embeddings of added tokens are made without any knowledge, so they must train, or be set
    by hand."""
    seen = record.exact.get("facts", {}).get("texts", {}).get("new_tokens")
    if not seen or not seen["rows_with"]:
        return only_for("rows with tokens that resize_token_embeddings added")
    words = (
        f"{seen['rows_with']} of {seen['rows']} rows use added tokens (id {seen['first']} and up)"
    )
    if not seen["frozen"]:
        return holds(f"{words} whose embeddings train or were set")
    return answer(
        f"{words} whose embeddings never train",
        broken=True,
        size=seen["rows_with"],
        value=seen["rows_with"],
        place=f"token {seen['first']}",
    )
