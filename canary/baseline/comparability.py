"""Whether two sides can be compared. If not, it is an error, never a regression."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from canary.record.curves import UNKNOWN_MACHINE
from canary.record.summary import MIN_STEPS, more_steps
from canary.record.types import RunRecord

ENDINGS = {
    "failed": "failed",
    "oom": "ran out of memory",
    "timeout": "exceeded its time limit",
    "interrupted": "was interrupted",
}
"""By status of a run that did not complete."""


def why_unusable(record: RunRecord) -> str:
    """Return why a record cannot be judged, or an empty text."""
    where = f"run {record.run_id}"
    if record.status != "completed":
        return f"{where} {ending(record)}"
    times = record.perf.step_time
    if is_imported(record) and untimed(record):
        return _unusable_import(record)
    if times.count < MIN_STEPS:
        ran = len(record.stability.loss_values)
        return (
            f"{where} has too few steps: {ran} run, {times.count} timed after warm-up, "
            f"{MIN_STEPS} needed; {more_steps(record)}"
        )
    for value in (times.mean, times.median):
        if not _positive(value):
            return f"{where} has a step time of {value:g} s, which is impossible; run it again"
    for launch in record.launches:
        for seconds in (launch.mean_step_time_s, launch.median_step_time_s):
            if seconds is not None and not _positive(seconds):
                return f"{where} has a launch with a step time of {seconds:g} s; run it again"
    if not all(map(_positive_or_none, (record.perf.max_mem_mb, record.perf.approx_tokens_per_sec))):
        return f"{where} has memory or speed that is not a positive number; run it again"
    return ""


def _unusable_import(record: RunRecord) -> str:
    where = f"run {record.run_id}"
    if not (record.curves or record.rl or record.stability.loss_values):
        return f"{where} was imported and has no metric; import it again"
    steps = max((launch.steps for launch in record.launches), default=0)
    if steps < MIN_STEPS:
        return f"{where} has too few steps: {steps} were recorded, {MIN_STEPS} needed"
    if not _positive_or_none(record.perf.max_mem_mb):
        return f"{where} has memory that is not a positive number; import it again"
    return ""


SAID = re.compile(r"(?:the training was interrupted|out of memory)\b:?")
"""The start of a reason that says the same as ENDINGS."""


def ending(record: RunRecord) -> str:
    """Return how a run ended and why, such as `was interrupted: Ctrl-C, after step 3`."""
    how = how_it_ended(record)
    said = SAID.match(how) if record.status in ("interrupted", "oom") else None
    words = ENDINGS.get(record.status, "did not complete")
    if said is None:
        return f"{words}: {how}"
    return f"{words}{':' * said[0].endswith(':')}{how[said.end() :]}"


def how_it_ended(record: RunRecord) -> str:
    """Return why a run did not complete, and after which step."""
    last = record.launches[-1:]
    steps = last[0].steps if last else 0
    steps = steps or len(record.stability.loss_values)
    if record.reason and "failed_rank" in record.ranks:
        return record.reason  # it names the rank and the step
    far = f"after step {steps}" if steps else "before its first step"
    # `far` says both.
    reason = (record.reason or "").replace(" before training", "", 1).removeprefix(f"{far}, ")
    return f"{reason}, {far}" if reason else f"it ended {far}"


def is_imported(record: RunRecord) -> bool:
    """Return whether another program recorded the run; such a record has no exact signals."""
    return record.source is not None


def untimed(record: RunRecord) -> bool:
    """Return whether a run has too few step times to judge them."""
    return record.perf.step_time.count < MIN_STEPS


def why_not_timed(records: Sequence[RunRecord]) -> str:
    """Return why the speeds of runs, some of them imported, cannot be compared; empty if they
    can."""
    bare = next((record for record in records if is_imported(record) and untimed(record)), None)
    if bare is not None:
        why = bare.unmeasured.get("perf.step_time")
        words = f"run {bare.run_id} was imported without step times"
        return f"{words} ({why})" if why else words
    unknown = [record for record in records if not record.env.get("device")]
    if any(map(is_imported, records)) and unknown:
        return f"the machine of run {unknown[0].run_id} {UNKNOWN_MACHINE}"
    return ""


def look_alone(record: RunRecord) -> bool:
    """Return whether the run is complete and was not timed on purpose (`exact: true`)."""
    untimed = bool(record.config.get("exact")) and record.perf.step_time.count == 0
    return record.status == "completed" and untimed and bool(record.exact)


def why_not_judged(record: RunRecord) -> str:
    """Return why a record cannot be judged even by its look alone, or an empty text."""
    return "" if look_alone(record) else why_unusable(record)


def _positive(value: float) -> bool:
    return 0 < value < math.inf


def _positive_or_none(value: float | None) -> bool:
    return value is None or _positive(value)


def machine_of(record: RunRecord) -> tuple[Any, ...]:
    """Return what must be equal: kind and names of the devices; for a CPU run, the processor."""
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
    """Return the machine's name for messages."""
    kind, name, *rest = machine_of(record)
    gpus = rest[0] if rest else ()
    return str(name or (gpus[0][0] if gpus else kind) or "unknown machine")


def mismatch(baseline: RunRecord, current: RunRecord) -> str:
    """Return why two records cannot be compared, or an empty text."""
    if is_imported(baseline) or is_imported(current):
        return _other_source(baseline, current)
    was, now = (r.config.get("training_type") for r in (baseline, current))
    # A command that failed before it trained has not told its trainer.
    commands = [r for r in (baseline, current) if r.config.get("training_type") == "exec"]
    unknown = any(r.status != "completed" for r in commands)
    if was != now and not unknown:
        return (
            f"two trainers: the baseline ran {was}, the current side {now}; compare runs of one "
            "trainer"
        )
    was, now = (r.exact.get("model", {}).get("model_type") for r in (baseline, current))
    if was and now and was != now:
        return f"two model families: {was} and {now}; compare runs of one family"
    return _two_machines(baseline, current) if _other_machine(baseline, current) else ""


def _two_machines(baseline: RunRecord, current: RunRecord) -> str:
    return (
        f"two machines: the baseline ran on {machine_words(baseline)}, the current side on "
        f"{machine_words(current)}; record a baseline on this machine"
    )


def _other_source(baseline: RunRecord, current: RunRecord) -> str:
    """Return why records, at least one of them imported, cannot be compared; empty if they can.

    The machine of an imported run may be unknown; then its speed is not judged."""
    presets = [r.source.preset for r in (baseline, current) if r.source is not None]
    if len(set(presets)) > 1:
        was, now = (f"as {one}" if one else "without a preset" for one in presets)
        return (
            f"two frameworks: the baseline was imported {was}, the current side {now}; compare "
            "runs of one framework"
        )
    if len({r.config.get("preset_sha256") for r in (baseline, current) if is_imported(r)}) > 1:
        return (
            "two presets: the preset's file changed, so a metric may have another name or unit; "
            "import both sides with one file, or begin a new period with `canary save-baseline "
            "--accept REASON`"
        )
    known = all(record.env.get("device") for record in (baseline, current))
    other = known and machine_of(baseline) != machine_of(current)
    return _two_machines(baseline, current) if other else ""


def _other_machine(baseline: RunRecord, current: RunRecord) -> bool:
    """Compare what both records have: a run that ended early may have no device yet."""
    if baseline.env.get("device") and current.env.get("device"):
        return machine_of(baseline) != machine_of(current)
    if baseline.status == current.status == "completed":
        return bool(baseline.env.get("device")) != bool(current.env.get("device"))
    known = "gpus" in baseline.env and "gpus" in current.env
    return known and _gpus(baseline) != _gpus(current)


def named_twice(side: Sequence[RunRecord]) -> list[str]:
    """Return run ids that occur more than once on a side."""
    ids = [record.run_id for record in side]
    return [run_id for place, run_id in enumerate(ids) if run_id in ids[:place]]


def same_runs(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[str]:
    """Return run ids that are on both sides."""
    known = {record.run_id for record in baseline}
    return [record.run_id for record in current if record.run_id in known]


def machine_key(record: RunRecord) -> str:
    """Return the key that separates runs: device model and variant, ranks, dtype. Config, packages
    and drivers are compared instead."""
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
    if record.source is not None and not gpus and not record.env.get("cpu"):
        return slug(f"{device.get('name') or 'unknown-machine'}_x{ranks}")
    return slug(f"{name}_x{ranks}_{asked_dtype(record.config)}")


def asked_dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype that a config computes in, `float32` by default. For a user's trainer it is
    the dtype of autocast: the dtype of the loaded weights, even a `mixed` one, does not count."""
    dtype, arguments = str(config.get("dtype", "float32")), config.get("trainer_args") or {}
    users = bool(config.get("command")) and config.get("trainer") != "canary.Recorder"
    autocast = arguments.get("bf16") or arguments.get("fp16")
    return "float32" if dtype == "mixed" or (users and not autocast) else dtype


def slug(text: str) -> str:
    """Return a text as a file name: only lower-case letters, digits, '.', '_' and '-'."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.") or "unnamed"


def own_slug(text: str, longest: int = 100) -> str:
    """Return a slug of at most `longest` characters that is unique to the text: it ends in a hash
    if it differs from the text."""
    plain = slug(text)
    if plain == text and len(plain) <= longest:
        return plain
    digest = hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:8]
    return f"{plain[: longest - 9]}-{digest}"
