"""Rules: what holds in every sound training, asked of the record of one run."""

from __future__ import annotations

from collections.abc import Iterable

from canary.compare.rules import (
    asked,
    losses,
    online,
    parameters,
    sampler_logprobs,
    tokens,
    updates,
    workers,
)
from canary.compare.rules.rule import Answer, Rule, only_for
from canary.errors import did_you_mean, nearest
from canary.record.types import RunRecord

RULES: tuple[Rule, ...] = (
    losses.raw_loss_finite,
    losses.loss_bounded,
    *losses.FIRST_LOSSES,
    online.starts_at_ratio_one,
    online.advantages_scaled,
    online.reward_varies,
    online.rewards_add_up,
    tokens.labels_contain_eos,
    tokens.at_most_one_bos,
    parameters.optimizer_holds_trainable,
    parameters.trainable_changed,
    parameters.updates_not_rounded,
    updates.gradients_start_empty,
    updates.clip_before_step,
    updates.clip_takes_effect,
    updates.schedule_once_per_update,
    updates.schedule_length,
    updates.stays_in_training_mode,
    parameters.only_the_optimizer_writes,
    parameters.frozen_unchanged,
    updates.learning_rate_positive,
    online.sampled_ids_trained,
    tokens.rows_have_labels,
    tokens.bos_as_tokenized,
    online.group_prompts,
    online.each_reward_varies,
    workers.batches_differ,
    workers.worker_draws,
    workers.stream_split,
    tokens.closed_turns,
    tokens.pair_labels,
    tokens.pairs_differ,
    losses.own_target,
    losses.loss_takes_logits,
    parameters.weights_loaded,
    tokens.new_tokens_train,
    sampler_logprobs.sampler_logprobs,
    parameters.ranks_agree,
    *asked.RULES,
)
"""All rules, in the order of the answer."""


DISABLED = Answer("not asked", "the config disables it")


def disabled(record: RunRecord) -> frozenset[str]:
    """Return the ids of the rules that a run's config disables."""
    return frozenset((record.config.get("check") or {}).get("disable") or ())


def answers(record: RunRecord) -> list[tuple[Rule, Answer]]:
    """Ask all rules about a run."""
    off = disabled(record)
    return [(rule, DISABLED if rule.id in off else _answer(rule, record)) for rule in RULES]


def _answer(rule: Rule, record: RunRecord) -> Answer:
    """Ask one rule; a log cannot answer most of them."""
    said = rule.judge(record)
    lacking = record.source is not None and said.status == "not asked"
    return only_for("trainings that the canary itself recorded") if lacking else said


def unknown(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first name that no rule has, with a hint; None if all are known."""
    known = [rule.id for rule in RULES]
    wrong = next((name for name in names if name not in known), None)
    if wrong is None:
        return None
    hint = did_you_mean(nearest(wrong, known), "canary check --list names all")
    return wrong, hint or ""
