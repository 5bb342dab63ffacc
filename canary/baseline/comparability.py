"""Whether two sides can be compared at all. What cannot is an error, never a regression."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from canary.record.summary import MIN_STEPS, more_steps
from canary.record.types import RunRecord


def usable(record: RunRecord) -> str:
    """Why a record cannot be judged; empty where it can."""
    where = f"run {record.run_id}"
    if record.status != "completed":
        return f"{where} is {record.status}, not completed: {how_it_ended(record)}"
    times = record.perf.step_time
    if times.count < MIN_STEPS:
        ran = len(record.stability.loss_values)
        return (
            f"{where} has too few steps: {ran} run, {times.count} timed after warm-up, "
            f"{MIN_STEPS} needed; {more_steps(record)}"
        )
    for value in (times.mean, times.median):
        if not _positive(value):
            return f"{where} has a step time of {value:g} s, which cannot be; run it again"
    for launch in record.launches:
        for seconds in (launch.mean_step_time_s, launch.median_step_time_s):
            if seconds is not None and not _positive(seconds):
                return f"{where} has a launch with a step time of {seconds:g} s; run it again"
    if not all(map(_positive_or_none, (record.perf.max_mem_mb, record.perf.approx_tokens_per_sec))):
        return f"{where} has memory or speed that is not a positive number; run it again"
    return ""


def how_it_ended(record: RunRecord) -> str:
    """Of a run that did not complete: why, and how far it had come."""
    # The launch that ended it: a probe may have run after a command that failed at its end.
    ended = [launch for launch in record.launches if launch.status != "completed"]
    last = [*ended[:1], *record.launches[-1:]]
    steps = last[0].steps if last else 0
    steps = steps or len(record.stability.loss_values)
    if record.reason and "failed_rank" in record.ranks:
        return record.reason  # which tells after what step of which rank
    far = f"after step {steps}" if steps else "before its first step"
    return f"{record.reason}, {far}" if record.reason else f"it ended {far}"


def probe_alone(record: RunRecord) -> bool:
    """Whether the record is of `repeats: 0`: complete, and with nothing timed on purpose."""
    asked = record.config.get("repeats") == 0 and record.perf.step_time.count == 0
    return record.status == "completed" and asked and bool(record.exact)


def judgeable(record: RunRecord) -> str:
    """Why a record cannot be judged in either lane; empty where it can, if only by its probe."""
    return "" if probe_alone(record) else usable(record)


def _positive(value: float) -> bool:
    return 0 < value < math.inf


def _positive_or_none(value: float | None) -> bool:
    return value is None or _positive(value)


def machine_of(record: RunRecord) -> tuple[Any, ...]:
    """What must agree: kind and names of the devices; for a CPU run, the processor."""
    device = record.env.get("device") or {}
    if device.get("type") == "cpu":
        return ("cpu", record.env.get("cpu"))
    return (device.get("type"), device.get("name"), _gpus(record))


def _gpus(record: RunRecord) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        (gpu.get("name"), gpu.get("memory_bytes"), gpu.get("mig"))
        for gpu in record.env.get("gpus") or []
    )


def machine_words(record: RunRecord) -> str:
    """The machine as shown."""
    kind, name, *rest = machine_of(record)
    gpus = rest[0] if rest else ()
    return str(name or (gpus[0][0] if gpus else kind) or "unknown machine")


def mismatch(baseline: RunRecord, current: RunRecord) -> str:
    """Why the two cannot be compared; empty where they can."""
    was, now = (r.config.get("training_type") for r in (baseline, current))
    if was != now:
        return (
            f"two trainers: the baseline ran {was}, the current side {now}; compare like with like"
        )
    was, now = (r.exact.get("model", {}).get("model_type") for r in (baseline, current))
    if was and now and was != now:
        return f"two model families: {was} and {now}; compare like with like"
    if _other_machine(baseline, current):
        return (
            f"two machines: the baseline ran on {machine_words(baseline)}, the current side on "
            f"{machine_words(current)}; take a baseline on this machine"
        )
    return ""


def _other_machine(baseline: RunRecord, current: RunRecord) -> bool:
    """By what both records know: one that ended early may not have got to its device."""
    if baseline.env.get("device") and current.env.get("device"):
        return machine_of(baseline) != machine_of(current)
    if baseline.status == current.status == "completed":
        return bool(baseline.env.get("device")) != bool(current.env.get("device"))
    known = "gpus" in baseline.env and "gpus" in current.env
    return known and _gpus(baseline) != _gpus(current)


def named_twice(side: Sequence[RunRecord]) -> list[str]:
    """Run ids that stand on one side more than once."""
    ids = [record.run_id for record in side]
    return [run_id for place, run_id in enumerate(ids) if run_id in ids[:place]]


def same_runs(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[str]:
    """Run ids on both sides."""
    known = {record.run_id for record in baseline}
    return [record.run_id for record in current if record.run_id in known]


def machine_key(record: RunRecord) -> str:
    """What runs are kept apart by: device model and variant, ranks, dtype. Config, packages and
    drivers are compared and never part of it."""
    gpus = record.env.get("gpus") or []
    device = record.env.get("device") or {}
    if device.get("type") == "cpu" or not gpus:
        name = f"cpu-{record.env.get('cpu') or record.env.get('machine') or 'unknown'}"
    else:
        gib = round((gpus[0].get("memory_bytes") or 0) / 2**30)
        name = f"{device.get('name') or gpus[0].get('name')}-{gib}gib"
        if gpus[0].get("mig"):
            name += "-mig"
    ranks = int(record.env.get("world_size") or 1)
    return slug(f"{name}_x{ranks}_{asked_dtype(record.config)}")


def asked_dtype(config: Mapping[str, Any]) -> str:
    """What a config asks to compute in, `float32` where it asks nothing. Of a user's own trainer
    that of its autocast: in what a model was loaded is the model's matter, as are `mixed`
    parameters."""
    dtype, arguments = str(config.get("dtype", "float32")), config.get("trainer_args") or {}
    own = bool(config.get("command")) and config.get("trainer") != "canary.Recorder"
    autocast = arguments.get("bf16") or arguments.get("fp16")
    return "float32" if dtype == "mixed" or (own and not autocast) else dtype


def slug(text: str) -> str:
    """A text as a file name: lower case, nothing but letters, digits, '.', '_' and '-'."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.") or "unnamed"


def own_slug(text: str, longest: int = 100) -> str:
    """A slug of at most so many characters that no other text has: one that says less than the text
    ends in a hash."""
    plain = slug(text)
    if plain == text and len(plain) <= longest:
        return plain
    digest = hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:8]
    return f"{plain[: longest - 9]}-{digest}"
