"""Checks that the record of a short run is complete; one line per missing part."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from typing import Any

from canary.record.types import RunRecord

STAGES = (
    "data",
    "batches",
    "model",
    "first_loss",
    "first_gradient",
    "first_update",
    "trajectory",
    "work",
    "memory",
    "calls",
    "frozen",
)
TRAINED = ("forward", "backward", "optimizer")
SAMPLED = ("generation", "reward", "logprob")
ROLLOUT = ("grpo", "rloo", "ppo")
LOOPS_ITSELF = ("trl_ppo",)
"""Trainers whose loop calls neither `compute_loss` nor a gradient clip."""
WITHOUT_LABELS = ("reward",)
LOG_DIGITS = 2e-3
"""Trainers print a loss to four digits."""


def missing(record: RunRecord, log: str, kind: str, steps: int, look_steps: int) -> list[str]:
    """Return what the record lacks, for `steps` steps with a look of `look_steps`."""
    if record.status != "completed":
        return [f"the run is {record.status}: {record.reason}"]
    return [
        *_series(record, kind, steps),
        *_phases(record, kind),
        *_tokens(record, kind),
        *_exact(record.exact, look_steps),
        *_logged(record, log, kind),
    ]


def _series(record: RunRecord, kind: str, steps: int) -> Iterator[str]:
    losses, norms = record.stability.loss_values, record.stability.grad_norm_values
    if len(losses) != steps:
        yield f"{len(losses)} losses of {steps} steps"
    if not all(map(math.isfinite, losses)):
        yield f"losses that are not finite: {losses}"
    if kind in LOOPS_ITSELF:
        return
    if len(norms) != steps or not all(n is not None and math.isfinite(n) and n > 0 for n in norms):
        yield f"gradient norms missing, not finite or not positive: {norms}"


def _phases(record: RunRecord, kind: str) -> Iterator[str]:
    total, mean = sum(record.phases.values()), record.perf.step_time.mean
    if not math.isclose(total, mean, rel_tol=1e-6):
        yield f"phases add up to {total} s, a step takes {mean} s"
    wanted = TRAINED + (SAMPLED if kind in ROLLOUT else ())
    if kind in LOOPS_ITSELF:
        wanted = ("backward", "optimizer", "generation")
    for phase in wanted:
        if not record.phases.get(phase):
            yield f"no time in phase {phase}"


def _tokens(record: RunRecord, kind: str) -> Iterator[str]:
    wanted = ["input_tokens"]
    if kind not in WITHOUT_LABELS:
        wanted.append("label_tokens")
    if kind in (*ROLLOUT, *LOOPS_ITSELF):
        wanted.append("completion_tokens")
    for name in wanted:
        if not record.tokens.get(name):
            yield f"no {name} counted"


def _exact(exact: Mapping[str, Any], steps: int) -> Iterator[str]:
    for stage in STAGES:
        if not exact.get(stage):
            yield f"no exact stage {stage}"
    if any(not exact.get(stage) for stage in STAGES):
        return
    batches, trajectory = exact["batches"], exact["trajectory"]
    if len(batches) != steps or not all(step and step[0]["sha256"] for step in batches):
        yield f"batches of {len(batches)} of {steps} steps"
    if len(trajectory["losses"]) != steps:
        yield f"{len(trajectory['losses'])} losses of the look for {steps} steps"
    if not exact["first_gradient"].get("groups"):
        yield "no gradient by module group"
    if not exact["first_update"].get("tensors_changed"):
        yield "no tensor changed in the first update"
    if not exact["work"].get("operator_total"):
        yield "no operators counted"
    if not exact["model"].get("parameters_sha256"):
        yield "no hash of the initial model"
    if len(exact["memory"].get("live_tensors", ())) != steps:
        yield "live tensors not counted in each step"


def _logged(record: RunRecord, log: str, kind: str) -> Iterator[str]:
    """Check that the first loss printed by the trainer equals the recorded one."""
    if kind in LOOPS_ITSELF:
        return
    printed = [line for line in log.splitlines() if line.startswith("{'loss':")]
    if not printed:
        yield "the trainer printed no loss"
        return
    said = float(ast.literal_eval(printed[0])["loss"])
    raw = record.stability.loss_values[0]
    if not math.isclose(said, raw, rel_tol=LOG_DIGITS, abs_tol=1e-4):
        yield f"the trainer printed loss {said} for step 1, but the record has {raw}"
