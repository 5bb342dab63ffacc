"""Facts of a record that several rules read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from canary.compare.rules.rule import Answer, not_asked, only_for
from canary.config.trainers import TrainerRow, trainer_row
from canary.record.curves import Curve
from canary.record.exact import Micro, Series, Signal
from canary.record.facts import UpdateFacts
from canary.record.types import RunRecord


def arguments(record: RunRecord) -> Mapping[str, Any]:
    """Return the config's `trainer_args`."""
    return record.config.get("trainer_args") or {}


def argument(record: RunRecord, name: str, default: Any) -> Any:
    """Return one of the config's `trainer_args`."""
    return arguments(record).get(name, default)


def setting(record: RunRecord, name: str) -> Any:
    """Return a training argument of `trainer_args`, else as the trainer had it, else of the config;
    or None."""
    known = record.exact.get("evidence", {}).get("settings", {})
    noted = known.get(f"args.{name}", known.get(f"trainer.{name}"))
    return argument(record, name, record.config.get(name) if noted is None else noted)


def whole_number(record: RunRecord, key: str) -> int:
    """Return a number of the config; 0 if it is not one, since a record can hold anything."""
    value = record.config.get(key)
    return value if isinstance(value, int) else 0


def trainer_of(record: RunRecord) -> TrainerRow:
    """Return the facts of the record's trainer."""
    return trainer_row(record.config.get("training_type"))


def overridden_loss(record: RunRecord) -> str:
    """Return a doubt about the loss if the user's trainer overrides it; otherwise empty."""
    method = record.exact.get("evidence", {}).get("own_loss")
    return f"the trainer overrides {method}" if method else ""


def starts_at_reference(record: RunRecord) -> bool:
    """Whether policy and reference model are equal before training."""
    model = record.exact.get("model", {})
    reference = model.get("reference_sha256")
    if reference is None:
        return bool(record.config.get("use_peft"))
    policy = model.get("policy_sha256") or model.get("parameters_sha256")
    return reference == policy


def special(record: RunRecord, name: str) -> int | None:
    """Return the id of a special token (bos, eos, pad, mask), or None."""
    tokens = record.exact.get("data", {}).get("tokenizer", {}).get("special_tokens", {})
    return tokens.get(f"{name}_token", {}).get("id")


def micro_batches(record: RunRecord) -> list[Micro]:
    """Return all micro-batches of the look, in order."""
    return [micro for step in record.exact.get("batches", []) for micro in step]


def width(micro: Micro) -> int:
    """Return the length of a micro-batch's rows, padding included."""
    return max((shape[-1] for shape in micro.get("shapes", {}).values() if shape), default=0)


def by_step(
    record: RunRecord, name: Literal["loss", "grad_norm", "learning_rate"]
) -> list[tuple[int, float | None]]:
    """Return steps and values of the look, or of the whole log of an imported run."""
    if record.source is not None:
        curve = record.curves.get(name, Curve())
        return list(zip(curve.steps, curve.values, strict=True))
    looked = record.exact.get("trajectory", {})
    series: dict[str, Series] = {
        "loss": looked.get("losses", []),
        "grad_norm": looked.get("grad_norms", []),
        "learning_rate": looked.get("learning_rates", []),
    }
    return [*enumerate(series[name], start=1)]


def logged(record: RunRecord) -> dict[str, Series]:
    """Return the metrics that the trainer logged, one value per step."""
    if record.source is not None:
        return {name: [*one.values] for name, one in record.curves.items()}
    return record.exact.get("trajectory", {}).get("rl", {})


def advantages_of_tokens(record: RunRecord) -> Signal:
    """Return PPO's whitened advantages; empty if they were not recorded."""
    return record.exact.get("rollout", {}).get("signals", {}).get("advantages", {})


def no_whole_groups(record: RunRecord) -> str:
    """Return why a step's advantages are not whole groups; empty if they are."""
    if trainer_of(record).advantages == "whitened":
        return f"{trainer_of(record).title} has no groups, and its advantages were not recorded"
    for key in ("steps_per_generation", "num_iterations", "generation_batch_size"):
        if setting(record, key) not in (None, 1, _of_one_step(record, key)):
            return f"{key} is set: a step may not hold whole groups"
    micro = micro_batches(record)
    if not micro or any("advantages" not in m for m in micro):
        return "advantages were not recorded"
    return ""


def _of_one_step(record: RunRecord, key: str) -> object:
    """Return the value that trl fills in itself, with which each step generates its own batch."""
    steps = setting(record, "gradient_accumulation_steps") or 1
    rows = setting(record, "per_device_train_batch_size") or record.config.get("batch_size", 8)
    if key == "steps_per_generation":
        return steps
    whole = key == "generation_batch_size" and isinstance(steps, int) and isinstance(rows, int)
    return steps * rows * max(1, len(record.ranks.get("by_rank", ()))) if whole else None


def farthest_from_one(values: Sequence[float]) -> float:
    """Return the value farthest from 1; NaN counts as farthest."""
    return max(values, key=lambda v: abs(v - 1.0) if v == v else float("inf"))


def updates_of(record: RunRecord) -> UpdateFacts | None:
    """Return what the look saw of the optimizers' updates; None if it saw none."""
    return record.exact.get("facts", {}).get("updates")


def without_tokens(record: RunRecord, why: str) -> Answer:
    """Return why nothing is asked where no tokens were counted: the model may read none."""
    if record.exact.get("work", {}).get("forwards") == 0:
        return only_for("language models")
    return not_asked(why)


def without_bos(record: RunRecord) -> Answer:
    """Return why nothing is asked where no BOS is known."""
    if record.exact.get("data", {}).get("tokenizer"):
        return only_for("tokenizers with BOS")
    return without_tokens(record, "no tokenizer was seen")


def warned(record: RunRecord, begins: str) -> str:
    """Return the first warning of a library that begins so; empty without one."""
    texts = [one["text"] for one in record.exact.get("facts", {}).get("warned", [])]
    return next((text for text in texts if text.startswith(begins)), "")


def any_gradient(seen: UpdateFacts) -> bool:
    """Whether any tensor of an optimizer had a gradient; where a step computes its gradients
    itself, they may be gone when it ends."""
    return any(one.get("closure") or one.get("with_gradient") for one in seen.get("optimizers", []))


NO_UPDATES = "no update of the optimizer was watched"
"""Why a rule about updates is not asked."""


def shown(names: Sequence[str], count: int) -> str:
    """Return the first name, and whether there are more."""
    return f"{names[0] if names else 'a tensor'}{', ...' if count > 1 else ''}"
