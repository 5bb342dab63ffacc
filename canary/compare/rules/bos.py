"""One BOS at most."""

from __future__ import annotations

from canary.compare.rules.facts import argument, micro_batches, special, without_bos
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
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
    packed = most > 1 and not any(m.get("pad_tokens", 1) for m in micro)
    return answer(
        most > 1,
        f"up to {most} BOS per sequence",
        size=most - 1,
        value=most,
        items=("BOS of packed rows",) if packed else (),
        doubt="no row is padded: is this packed text?" if packed else "",
    )


RULE = Rule(
    "at_most_one_bos",
    "a sequence has at most one BOS",
    "a BOS of its own, and rows that are not packed",
    "tokenize rendered chats with add_special_tokens=False",
    "https://github.com/huggingface/trl/issues/1400",
    judge,
)
