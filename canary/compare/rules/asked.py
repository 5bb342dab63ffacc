"""Rules that the look itself answers, because they need tensors and texts: it reads the gradient of
the logits (`canary.training.asking`), or calls the model again about rows of its first update."""

from __future__ import annotations

import functools

from canary.compare.rules.rule import Answer, Rule, not_asked, only_for
from canary.record.types import RunRecord

SUBJECT = "first updates"
"""What could not be watched if none of them was asked."""
ONLY_FOR = "only for "
"""Begins a reason that nobody needs to know."""
LONGEST = 300
"""Characters that are shown."""
UNASKED = "the look did not read what its tokens were trained towards"
ONCE = "canary exec does not call the model again; canary check does"

GRADIENT = "the gradient of the logits is that of a cross-entropy"
SECOND = "the model can be called again"
GITHUB = "https://github.com"
TRL = f"{GITHUB}/huggingface/trl"
TRANSFORMERS = f"{GITHUB}/huggingface/transformers"


def _judge(record: RunRecord, name: str, again: bool) -> Answer:
    said = record.exact.get("asked", {}).get(name)
    if said is None:
        unseen = record.exact.get("facts", {}).get("unseen", {}).get(SUBJECT)
        if unseen and record.exact.get("work", {}).get("forwards") == 0:
            return only_for("language models")
        any_asked = bool(record.exact.get("asked"))
        return not_asked(unseen or (ONCE if again and any_asked else UNASKED))
    words, status = said.get("words", "")[:LONGEST], said.get("status", "not asked")
    if status == "not asked" and words.startswith(ONLY_FOR):
        return only_for(words.removeprefix(ONLY_FOR))
    place, doubt = said.get("place", "")[:LONGEST], said.get("doubt", "")[:LONGEST]
    return Answer(status, words, place, size=float(status in ("broken", "note")), doubt=doubt)


def _rule(
    name: str, holds: str, needs: str, do: str, source: str = "", *, again: bool = False
) -> Rule:
    judge = functools.partial(_judge, name=name, again=again)
    return Rule(name, holds, needs, do, source, judge)


RULES: tuple[Rule, ...] = (
    _rule(
        "accumulation",
        "each trained token of an update weighs the same, whatever its micro-batch",
        "several micro-batches per update, and a loss without weights or advantages",
        "divide the summed loss by the tokens of the whole update",
        f"{TRANSFORMERS}/issues/24725",
    ),
    _rule(
        "next_token",
        "some tokens are trained on, each position towards the next token",
        f"{GRADIENT}, and a model with `generate` of transformers, or a causal one",
        "shift the labels once, in the data or in the loss; do not mask all of them",
        f"{TRANSFORMERS}/issues/47394",
    ),
    _rule(
        "trained_padding",
        "padding is not trained on",
        f"{GRADIENT}, and the mask or the rows show which token is padding",
        "set the labels of padding to -100, or multiply the loss by the mask",
        f"{GITHUB}/bingreeky/MemGen/pull/33",
    ),
    _rule(
        "leftover",
        "no row ends with leftover tokens of an earlier batch",
        "several calls of the model, with padded rows",
        "fill a reused buffer with padding before each batch",
        f"{TRANSFORMERS}/issues/47394",
    ),
    _rule(
        "prompt_labels",
        "if only answers are trained on, no prompt token is trained on",
        "the data or the chat template says what is prompt, and a mask leaves prompts out",
        "count the prompt's tokens in the padded row, with the same template and tokenizer",
        f"{TRL}/issues/1507",
    ),
    _rule(
        "assistant_mask",
        "no mask of an answer begins inside the word before it",
        "the data or the chat template says what is answer",
        "compute the mask on the tokens of the row itself",
        f"{TRANSFORMERS}/issues/34172",
    ),
    _rule(
        "eos_labels",
        "most answers are not cut before their EOS",
        "the chat template says where answers are, and rows have a max_length",
        "raise max_length, or leave out rows that are longer",
        f"{TRL}/issues/1623",
    ),
    _rule(
        "reference",
        "the reference is not the policy, and has no dropout",
        "the loss raises some rows and lowers others",
        "make the reference a frozen copy in evaluation mode",
        f"{GITHUB}/YiyangZhou/POVID/issues/11",
    ),
    _rule(
        "first_ratio",
        "the policy scores sampled rows as it did just before: the first ratio is 1",
        "online RL that scores its rows without gradients before an update",
        "switch dropout off, or score and update in the same mode",
        f"{GITHUB}/Human-Agent-Society/reef/pull/536",
    ),
    _rule(
        "kl_sign",
        "the KL term pulls towards the reference",
        "a reference, and advantages that do not vary within a row",
        "add the KL term to the loss, or subtract it from the reward",
        f"{GITHUB}/qiancheng0/ToolRL/issues/52",
    ),
    _rule(
        "group_advantages",
        "advantages of GRPO and RLOO add up to 0 within the completions of a prompt",
        "the training is named so, and each update has whole groups",
        "centre the rewards of each prompt's completions by themselves",
        "https://arxiv.org/abs/2402.03300",
    ),
    _rule(
        "causality",
        "a later token does not change the log-probabilities of earlier ones",
        f"{SECOND}, and its loss is a next-token loss",
        "combine the padding mask with a causal one",
        f"{TRANSFORMERS}/pull/48769",
        again=True,
    ),
    _rule(
        "padding_side",
        "a row has the same log-probabilities without its padding",
        f"{SECOND}, and a row has padding",
        "pass the attention mask, and positions that do not count padding",
        f"{GITHUB}/ndif-team/nnsight/pull/673",
        again=True,
    ),
    _rule(
        "neighbour",
        "a row's log-probabilities do not depend on the other rows",
        f"{SECOND}, and a micro-batch has several rows",
        "look for batch normalisation, a mean over rows, or swapped dimensions",
        f"{GITHUB}/IBM/TabFormer/pull/14",
        again=True,
    ),
    _rule(
        "packing",
        "the log-probabilities of a packed document do not depend on the one before it",
        f"{SECOND}, and positions begin again at each document",
        "give packed rows a block mask, or an attention that reads their positions",
        f"{TRL}/pull/3526",
        again=True,
    ),
    _rule(
        "adapter_start",
        "adapters change nothing before the first update",
        f"{SECOND}, with adapters of peft that do not change the base model",
        "start one matrix of each adapter at zero; after a resume, this is as it must be",
        "https://arxiv.org/abs/2106.09685",
        again=True,
    ),
)
