"""What holds in every healthy run, whatever the baseline says. One function an invariant.

Each returns a check; an invariant whose precondition does not hold is skipped with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from canary.collect.jsonio import number
from canary.collect.record import RunRecord
from canary.compare.inputs_stages import is_rollout
from canary.compare.report import Check

LN_2 = math.log(2.0)
FIRST_LOSS_TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-3}
ADVANTAGE_SUM_TOLERANCE = 1e-3
"""Of an advantage, on average; scaled advantages are of size 1."""
ADVANTAGE_SCALE_TOLERANCE = 0.1
KL_AT_START = 1e-5
ZERO_GRADIENT_AT_START = ("lora_A", "lora_embedding_A")
"""LoRA starts with B = 0, so that A has no gradient in the first step."""


def _skip(name: str, reason: str) -> Check:
    return Check(name, "correctness", "invariant", "skip", reason)


def _result(
    name: str, broken: bool, message: str, delta: float, current: float | int | None = None
) -> Check:
    return Check(
        name,
        "correctness",
        "invariant",
        "fail" if broken else "pass",
        message,
        current=current,
        delta=delta,
    )


def _argument(record: RunRecord, name: str, default: Any) -> Any:
    return (record.config.get("trainer_args") or {}).get(name, default)


def _starts_at_reference(record: RunRecord) -> bool:
    model = record.exact.get("model", {})
    reference = model.get("reference_sha256")
    if reference is None:
        return bool(record.config.get("use_peft"))
    return bool(reference == model.get("parameters_sha256"))


def _special(record: RunRecord, name: str) -> int | None:
    tokens = record.exact.get("data", {}).get("tokenizer", {}).get("special_tokens", {})
    found = tokens.get(f"{name}_token") or {}
    return found.get("id") if isinstance(found, Mapping) else None


def _micro_batches(record: RunRecord) -> list[Mapping[str, Any]]:
    return [micro for step in record.exact.get("batches", []) for micro in step]


def probe_finite(record: RunRecord) -> Check:
    """Raw losses and gradient norms of the probe."""
    trajectory = record.exact.get("trajectory", {})
    values = [*trajectory.get("losses", []), *trajectory.get("grad_norms", [])]
    bad = [v for v in values if v is not None and not math.isfinite(float(number(v)))]
    return _result(
        "raw_loss_finite", bool(bad), f"{len(bad)} losses or gradients not finite", float(len(bad))
    )


def _log_likelihood(record: RunRecord) -> bool:
    kind = record.config.get("training_type")
    if kind == "sft":
        return bool(_argument(record, "loss_type", "nll") in ("nll", None))
    sigmoid = _argument(record, "loss_type", "sigmoid") in ("sigmoid", ["sigmoid"], None)
    return kind in ("dpo", "reward") and sigmoid and not _argument(record, "label_smoothing", 0)


def loss_not_negative(record: RunRecord) -> Check:
    """A negative log-likelihood is never below zero."""
    name = "loss_not_negative"
    if not _log_likelihood(record):
        return _skip(name, "this loss may be negative")
    losses = [*record.exact.get("trajectory", {}).get("losses", []), *record.stability.loss_values]
    values = [float(number(v)) for v in losses if v is not None]
    negative = [v for v in values if v < 0]
    return _result(
        name,
        bool(negative),
        f"{len(negative)} losses below zero, which a log-likelihood cannot be"
        if negative
        else "no loss below zero",
        float(len(negative)),
    )


def dpo_first_loss(record: RunRecord) -> Check:
    """-log sigmoid(0) = ln 2 where policy and reference are one (Rafailov et al. 2023, eq. 7)."""
    name = "dpo_first_loss"
    if record.config.get("training_type") != "dpo":
        return _skip(name, "for DPO")
    if not _log_likelihood(record):
        return _skip(name, "for the sigmoid loss without label smoothing")
    if not _starts_at_reference(record):
        return _skip(name, "the reference is not the policy at the start")
    if record.config.get("lora_dropout"):
        return _skip(name, "dropout makes policy and reference differ")
    loss = number(record.exact.get("first_loss", {}).get("loss"))
    if loss is None:
        return _skip(name, "the first loss was not recorded")
    tolerance = FIRST_LOSS_TOLERANCE.get(str(record.config.get("dtype")), 1e-5)
    off = loss - LN_2
    broken = not abs(off) <= tolerance
    words = f"first loss {loss:.6f}, ln 2 is {LN_2:.6f}"
    if broken:
        words += (
            ": policy and reference do not agree before training (dropout left on, or two models)"
        )
    return _result(name, broken, words, off, loss)


def starts_at_ratio_one(record: RunRecord) -> Check:
    """The first step of online RL: nothing clipped, KL 0."""
    name = "starts_at_ratio_one"
    if not is_rollout(record):
        return _skip(name, "for online RL")
    rl = record.exact.get("trajectory", {}).get("rl", {})
    clipped = [v[0] for k, v in rl.items() if k.startswith("clip_ratio") and v and v[0] is not None]
    kl = (rl.get("kl") or [None])[0]
    if not clipped and kl is None:
        return _skip(name, "neither clip ratio nor KL was recorded")
    off = [v for v in clipped if v != 0]
    if kl is not None and _starts_at_reference(record) and not abs(kl) <= KL_AT_START:
        return _result(name, True, f"KL {kl:.3g} before any update, 0 expected", float(kl), kl)
    return _result(
        name, bool(off), f"clipped {max(off, default=0.0):.3g} of the ratios in step 1", len(off)
    )


def _whole_groups(record: RunRecord) -> str:
    """Why a step's advantages are not whole groups; empty where they are."""
    if not is_rollout(record):
        return "for online RL"
    for key in ("steps_per_generation", "num_iterations", "generation_batch_size"):
        if _argument(record, key, None) not in (None, 1):
            return f"{key} is set: a step is not a whole generation"
    micro = _micro_batches(record)
    if not micro or any("advantages" not in m for m in micro):
        return "advantages were not recorded"
    return ""


def advantages_sum_to_zero(record: RunRecord) -> Check:
    """Advantages are deviations from their group's mean (Shao et al. 2024, section 4.1)."""
    name = "advantages_sum_to_zero"
    reason = _whole_groups(record)
    if reason:
        return _skip(name, reason)
    worst = 0.0
    for step in record.exact["batches"]:
        values = [float(number(v)) for micro in step for v in micro["advantages"]]
        mean = sum(values) / len(values) if values else 0.0
        worst = mean if not abs(mean) <= abs(worst) else worst
    broken = not abs(worst) <= ADVANTAGE_SUM_TOLERANCE
    return _result(name, broken, f"mean advantage of a step at most {worst:.2g}", worst, worst)


def advantages_scaled(record: RunRecord) -> Check:
    """Scaled by the group's standard deviation, the squares of an unsaturated group sum to its
    size less one."""
    name = "advantages_scaled"
    reason = _whole_groups(record)
    if not reason and _argument(record, "scale_rewards", "group") not in ("group", True, None):
        reason = "scale_rewards is not by group"
    if not reason and _argument(record, "loss_type", None) == "dr_grpo":
        reason = "dr_grpo does not scale"
    rl = record.exact.get("trajectory", {}).get("rl", {})
    saturated = rl.get("frac_reward_zero_std")
    size = record.config.get("num_generations")
    if reason:
        return _skip(name, reason)
    if not saturated or not size:
        return _skip(name, "the share of saturated groups was not recorded")
    ratios = []
    for step, share in zip(record.exact["batches"], saturated, strict=False):
        values = [float(number(v)) for micro in step for v in micro["advantages"]]
        expected = (len(values) / size) * (1 - (share or 0)) * (size - 1)
        if expected > 0.5:
            ratios.append(sum(v * v for v in values) / expected)
    if not ratios:
        return _skip(name, "every group is saturated")
    worst = max(ratios, key=lambda r: abs(r - 1))
    broken = not abs(worst - 1) <= ADVANTAGE_SCALE_TOLERANCE
    return _result(
        name, broken, f"variance of advantages in a group {worst:.3g}, 1 expected", worst - 1, worst
    )


def reward_varies(record: RunRecord) -> Check:
    """A reward without any spread teaches nothing."""
    name = "reward_varies"
    found = record.rl.get("reward_std")
    if not is_rollout(record) or found is None or found.count == 0:
        return _skip(name, "for online RL" if not is_rollout(record) else "no rewards recorded")
    return _result(
        name,
        not found.max > 0,
        f"largest standard deviation of rewards {found.max:.3g}",
        found.max,
        found.max,
    )


def labels_contain_eos(record: RunRecord) -> Check:
    """Without EOS in what is trained on, the model never learns to stop."""
    name = "labels_contain_eos"
    micro = _micro_batches(record)
    if is_rollout(record):
        return _skip(name, "the model's own completions may be cut")
    if _special(record, "eos") is None or not micro or "eos_labels" not in micro[0]:
        return _skip(name, "no EOS token, or labels were not recorded")
    limit = record.config.get("max_length")
    widths = [max((s[-1] for s in m.get("shapes", {}).values() if s), default=0) for m in micro]
    if limit and min(widths) >= limit:
        return _skip(name, "every batch is cut at max_length")
    count = sum(m["eos_labels"] for m in micro)
    labels = sum(m.get("label_tokens", 0) for m in micro)
    words = f"{count} EOS among {labels} label tokens"
    if count == 0:
        words += ": the model will never learn to stop"
    return _result(name, count == 0, words, float(count == 0), count)


def at_most_one_bos(record: RunRecord) -> Check:
    """A second BOS comes from tokenizing a text that a chat template has already begun."""
    name = "at_most_one_bos"
    bos = _special(record, "bos")
    micro = [m for m in _micro_batches(record) if "bos_most_in_a_sequence" in m]
    if bos is None or not micro:
        return _skip(name, "no BOS token, or it was not counted")
    if bos in (_special(record, "eos"), _special(record, "pad")):
        return _skip(name, "BOS is EOS or pad as well")
    if _argument(record, "packing", False) or _argument(record, "padding_free", False):
        return _skip(name, "packed sequences have one each")
    most = max(m["bos_most_in_a_sequence"] for m in micro)
    return _result(name, most > 1, f"at most {most} BOS in a sequence", float(most - 1), most)


def trainable_changed(record: RunRecord) -> Check:
    """After one update, the tensors that changed are those declared trainable."""
    name = "trainable_changed"
    update = record.exact.get("first_update")
    rates = record.exact.get("trajectory", {}).get("learning_rates", [])
    if not update or not rates:
        return _skip(name, "the first update was not recorded")
    if not rates[0] or rates[0] <= 0:
        return _skip(name, "the learning rate of step 1 is 0 (warm-up)")
    micro = record.exact["batches"][0] if record.exact.get("batches") else []
    if is_rollout(record) and micro and not any(any(m.get("advantages", [1])) for m in micro):
        return _skip(name, "every advantage of step 1 is 0")
    still = [
        tensor
        for tensor in update.get("tensors_unchanged", [])
        if not any(part in tensor for part in ZERO_GRADIENT_AT_START)
    ]
    words = f"{update.get('tensors_changed')} trainable tensors changed in step 1"
    if still:
        words += f", {len(still)} did not ({still[0]}{', ...' if len(still) > 1 else ''})"
    return _result(name, bool(still), words, float(len(still)), update.get("tensors_changed"))


def frozen_unchanged(record: RunRecord) -> Check:
    """Frozen parameters and the reference model never change."""
    name = "frozen_unchanged"
    frozen = record.exact.get("frozen")
    if not frozen:
        return _skip(name, "frozen parameters were not recorded")
    if _argument(record, "sync_ref_model", False):
        return _skip(name, "sync_ref_model moves the reference on purpose")
    moved = list(frozen.get("changed", []))
    if frozen.get("reference_changed"):
        moved.append("the reference model")
    words = f"{frozen.get('tensors', 0)} frozen tensors and the reference unchanged"
    if moved:
        words = f"changed although frozen: {', '.join(moved[:3])}"
    return _result(name, bool(moved), words, float(len(moved)))


def learning_rate_positive(record: RunRecord) -> Check:
    """Above zero, but for warm-up's first step and the last step."""
    name = "learning_rate_positive"
    rates = record.exact.get("trajectory", {}).get("learning_rates", [])
    if not rates:
        return _skip(name, "learning rates were not recorded")
    last = int(record.config.get("max_steps") or 0)
    warmup = int(record.config.get("warmup_steps") or 0)
    zero = [
        step
        for step, rate in enumerate(rates, start=1)
        if (rate is None or not float(number(rate)) > 0)
        and not (step == 1 and warmup > 0)
        and step != last
    ]
    return _result(name, bool(zero), f"{len(zero)} steps at learning rate 0", float(len(zero)))


def same_tokens_sampled_and_trained(record: RunRecord) -> Check:
    """The ids that were sampled are the ids that enter the loss."""
    return _skip(
        "sampled_ids_trained",
        "the probe does not record sampled ids" if is_rollout(record) else "for online RL",
    )


INVARIANTS: tuple[Callable[[RunRecord], Check], ...] = (
    probe_finite,
    loss_not_negative,
    dpo_first_loss,
    starts_at_ratio_one,
    advantages_sum_to_zero,
    advantages_scaled,
    reward_varies,
    labels_contain_eos,
    at_most_one_bos,
    trainable_changed,
    frozen_unchanged,
    learning_rate_positive,
    same_tokens_sampled_and_trained,
)


def invariant_checks(current: Sequence[RunRecord]) -> Iterator[Check]:
    """Every invariant on every record that has a probe; the first that breaks one speaks for the
    side. Nothing where no record has one."""
    if not any(record.exact for record in current):
        return
    for invariant in INVARIANTS:
        checks = [invariant(record) for record in current if record.exact]
        broken = [check for check in checks if check.status == "fail"]
        yield (broken or checks)[-1 if not broken else 0]
