"""BOS where the tokenizer sets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import micro_batches, special, width, without_bos
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.exact import Micro
from canary.record.types import RunRecord

NO_TEMPLATE = "there is no chat template, so nothing shows how the model will be asked"
PARTS = "most rows are equally long: are these parts of longer texts?"


def judge(record: RunRecord) -> Answer:
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
    return answer(not most, words, value=most, doubt=doubt)


def _are_whole(micro: Sequence[Micro]) -> bool:
    """Whether most micro-batches hold rows of their own length: parts of a text fill their rows."""
    usual, _ = Counter(map(width, micro)).most_common(1)[0]
    whole = [m for m in micro if m.get("pad_tokens") or width(m) != usual]
    return 2 * len(whole) > len(micro)


RULE = Rule(
    "bos_as_tokenized",
    "rows begin with BOS as the tokenizer sets it",
    "a tokenizer and a chat template that both begin with BOS, and rows of whole texts",
    "keep the BOS that the chat template writes, or tokenize plain text with special tokens",
    "https://github.com/huggingface/alignment-handbook/issues/127",
    judge,
)
