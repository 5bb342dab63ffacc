"""trl's reference trajectories: config, environment and steps with loss and gradient norm.

Read in huggingface/trl at f2cd57710ae345ea6428ae95363267fcf38a3dc8 (1.10.0.dev0), in
tests/invariant/test_invariant.py. Its limits are absolute: one per step, and one for the mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from canary.golden.formats.schema import NotThis, Schema, finite_number, rising
from canary.golden.model import Golden, GoldenMetric
from canary.golden.tolerance import Tolerance

PROJECT = "huggingface/trl f2cd57710ae345ea6428ae95363267fcf38a3dc8"
METRICS = ("loss", "grad_norm")
Limits = Mapping[str, Tolerance]


def _limits(loss: float, grad_norm: float, mean_loss: float, mean_norm: float) -> Limits:
    return {
        "loss": Tolerance("absolute", loss, mean=mean_loss),
        "grad_norm": Tolerance("absolute", grad_norm, mean=mean_norm),
    }


CLASSES = {
    "sft": _limits(1e-3, 1e-1, 1e-5, 1e-3),
    "sft_fa2": _limits(1.5e-2, 5.0, 1e-3, 2.5e-1),
    "dpo": _limits(1e-4, 1e-2, 1e-5, 1e-3),
}
"""Its EQUIVALENCE_CLASSES."""
KEPT = ("config", "env")


def class_of(config: Any) -> str:
    """Return the class of a file's config; `dpo`, the strictest, for other methods."""
    config = config if isinstance(config, Mapping) else {}
    args = config.get("args")
    flash = isinstance(args, Mapping) and "flash" in str(args.get("attn_implementation", ""))
    if config.get("method") == "sft":
        return "sft_fa2" if flash else "sft"
    return "dpo"


def _recognizes(document: Any) -> bool:
    return isinstance(document.get("steps"), list) and "config" in document


def _read(document: dict[str, Any]) -> Golden:
    found: dict[str, dict[int, float]] = {name: {} for name in METRICS}
    for row in document["steps"]:
        step = row.get("step") if isinstance(row, dict) else None
        if isinstance(step, bool) or not isinstance(step, int):
            raise NotThis("an entry of steps has no whole number `step`")
        if step in found["loss"]:
            raise NotThis(f"step {step} is there twice")
        for name in METRICS:
            found[name][step] = finite_number(row.get(name), f"{name} at step {step}")
    limits = CLASSES[class_of(document["config"])]
    metrics = {
        name: GoldenMetric(rising(values, name), limits[name]) for name, values in found.items()
    }
    facts = {key: document[key] for key in KEPT if isinstance(document.get(key), dict)}
    return Golden("trl", metrics, facts=facts)


def _write(golden: Golden) -> str:
    losses, norms = (golden.metrics[name].series.at() for name in METRICS)
    if losses.keys() != norms.keys():
        raise NotThis("loss and grad_norm have other steps")
    document = {
        **{key: golden.facts.get(key, {}) for key in KEPT},
        "steps": [
            {"step": step, "loss": loss, "grad_norm": norms[step]} for step, loss in losses.items()
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


SCHEMA = Schema(
    "trl",
    PROJECT,
    _recognizes,
    _read,
    _write,
    metrics=METRICS,
    required=METRICS,
    only=True,
)
