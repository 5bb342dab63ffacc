"""EOS among the labels."""

from __future__ import annotations

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import (
    micro_batches,
    special,
    trainer_of,
    whole_number,
    width,
    without_tokens,
)
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

GUESSED = "the tokenizer is unknown, and EOS comes from the model's config"


def judge(record: RunRecord) -> Answer:
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
    limit = whole_number(record, "max_length")
    if limit and min(map(width, micro)) >= limit:
        return not_asked("every batch is cut at max_length")
    count = sum(m.get("eos_labels", 0) for m in micro)
    if not count and (stops := sum(m.get("stop_labels", 0) for m in micro)):
        return answer(False, f"{stops} labels are tokens at which generation stops", value=stops)
    labels = sum(m.get("label_tokens", 0) for m in micro)
    words = f"{count} EOS among {labels} label tokens"
    if count == 0 and not guessed:
        words += ": the model will never learn to stop"
    return answer(count == 0, words, value=count, doubt=GUESSED if guessed else _other_text(record))


def _other_text(record: RunRecord) -> str:
    """Return a hint that the labels are not answers with an end; empty without one."""
    if special(record, "mask") is not None:
        return "the tokenizer has a mask token: is this a masked language model?"
    seen = [micro.get("eos_inputs") for micro in micro_batches(record)]
    if seen and not any(count is None or count for count in seen):
        return "no input has EOS either: is this plain text without EOS?"
    return ""


RULE = Rule(
    "labels_contain_eos",
    "labels contain EOS",
    "answers that are not cut, and a tokenizer with EOS",
    "let the collator mask padding by the attention mask, not by the id of EOS; end each answer "
    "with EOS",
    "https://github.com/huggingface/transformers/issues/23530",
    judge,
)
