"""Rules: what holds in every sound training, asked of the record of one run. One file a rule."""

from __future__ import annotations

from collections.abc import Iterable

from canary.compare.rules import (
    advantages_scaled,
    advantages_sum,
    answers_kept,
    asked,
    bos,
    bos_as_tokenized,
    clip_before_step,
    clip_takes_effect,
    closed_turns,
    each_reward_varies,
    finite,
    first_loss,
    frozen,
    gradients_start_empty,
    group_prompts,
    labels_contain_eos,
    learning_rate,
    library_warned,
    new_tokens_train,
    not_negative,
    only_the_optimizer_writes,
    optimizer_holds_trainable,
    own_target,
    pair_labels,
    ranks_agree,
    ratio_at_start,
    reward_varies,
    rewards_add_up,
    rows_have_labels,
    sampled_ids,
    sampler_logprobs,
    schedule,
    stays_in_training_mode,
    stops_at_trained_end,
    stream_split,
    trainable_changed,
    updates_not_rounded,
    weights_loaded,
    worker_draws,
)
from canary.compare.rules.rule import Answer, Rule
from canary.errors import did_you_mean, nearest
from canary.record.types import RunRecord

RULES: tuple[Rule, ...] = (
    finite.RULE,
    not_negative.RULE,
    *first_loss.RULES,
    ratio_at_start.RULE,
    advantages_sum.RULE,
    advantages_scaled.RULE,
    reward_varies.RULE,
    rewards_add_up.RULE,
    labels_contain_eos.RULE,
    bos.RULE,
    optimizer_holds_trainable.RULE,
    trainable_changed.RULE,
    updates_not_rounded.RULE,
    gradients_start_empty.RULE,
    clip_before_step.RULE,
    clip_takes_effect.RULE,
    *schedule.RULES,
    stays_in_training_mode.RULE,
    only_the_optimizer_writes.RULE,
    frozen.RULE,
    learning_rate.RULE,
    sampled_ids.RULE,
    rows_have_labels.RULE,
    bos_as_tokenized.RULE,
    stops_at_trained_end.RULE,
    group_prompts.RULE,
    each_reward_varies.RULE,
    worker_draws.RULE,
    stream_split.RULE,
    answers_kept.RULE,
    closed_turns.RULE,
    pair_labels.RULE,
    own_target.RULE,
    weights_loaded.RULE,
    new_tokens_train.RULE,
    library_warned.RULE,
    sampler_logprobs.RULE,
    ranks_agree.RULE,
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
    return [(rule, DISABLED if rule.id in off else rule.judge(record)) for rule in RULES]


def unknown(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first name that no rule has, with a hint; None if all are known."""
    known = [rule.id for rule in RULES]
    wrong = next((name for name in names if name not in known), None)
    if wrong is None:
        return None
    hint = did_you_mean(nearest(wrong, known), "canary check --list names all")
    return wrong, hint or ""
