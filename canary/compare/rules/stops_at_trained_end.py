"""The end that is trained, and the end at which generation stops."""

from __future__ import annotations

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import micro_batches, special, without_tokens
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

GIVEN = "other stops may be given where the model generates"


def judge(record: RunRecord) -> Answer:
    """A model that learns one end and stops at another one generates until its limit."""
    if is_rollout(record):
        return only_for("texts that are given")
    stops = record.exact.get("facts", {}).get("texts", {}).get("stops", [])
    micro = [m for m in micro_batches(record) if "stop_labels" in m]
    eos = special(record, "eos")
    if not stops or not micro or eos is None:
        return without_tokens(record, "where texts end or generation stops is not known")
    trained = sum(m.get("eos_labels", 0) for m in micro)
    if not trained:
        return not_asked("no label is EOS")
    stopping = sum(m["stop_labels"] for m in micro)
    words = f"{stopping} labels are tokens at which generation stops"
    if not stopping:
        words = f"{trained} labels are EOS ({eos}), and generation stops at {stops[0]} only"
    return answer(not stopping, words, size=trained, value=stopping, doubt=GIVEN)


RULE = Rule(
    "stops_at_trained_end",
    "generation stops at an end that is trained",
    "a tokenizer, and a model that generates",
    "set generation_config.eos_token_id to the token that ends the answers",
    "https://github.com/huggingface/open-r1/pull/663",
    judge,
)
