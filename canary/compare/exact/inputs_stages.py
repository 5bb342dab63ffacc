"""The input stages: data, batches (and how they split into micro-batches), the initial model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any, Literal

from canary.compare.exact.changes import flatten
from canary.compare.exact.sides import Sides, learned
from canary.compare.report import Difference
from canary.config.trainers import trainer_row
from canary.record.exact import Micro, TokenCount
from canary.record.types import RunRecord

Steps = Sequence[Sequence[Micro]]
TOKEN_COUNTS: tuple[TokenCount, ...] = (
    "label_tokens",
    "eos_labels",
    "bos_tokens",
    "input_tokens",
    "sequences",
    "pad_tokens",
)
"""Totals that separate one cause from another, the most specific first."""


def is_rollout(record: RunRecord) -> bool:
    """Whether the trainer generates its training data."""
    return trainer_row(record.config.get("training_type")).online


def short(value: Any) -> Any:
    """Shorten a hash for people."""
    return value[:12] if isinstance(value, str) and len(value) == 64 else value


def data_differences(sides: Sides) -> list[Difference]:
    """Compare dataset fingerprint, tokenizer vocabulary, chat template and special tokens."""
    before, after = (
        dict(flatten(data)) for data in sides.read(lambda exact: exact.get("data", {}))
    )
    seen = [any(key.startswith("tokenizer.") for key in side) for side in (before, after)]
    found = []
    for key in sorted(dict.fromkeys((*before, *after)), key=_cause_first):
        was, now = before.get(key), after.get(key)
        if was != now and (all(seen) or not key.startswith("tokenizer.")):
            words = f"{key} {short(was)} -> {short(now)}"
            found.append(learned("data", key, short(was), short(now), words))
    return found


def _cause_first(key: str) -> int:
    """Sort key that puts causes first: a chat template changes the rows made with it."""
    causes = ("tokenizer.chat_template_sha256", "tokenizer")
    return next((i for i, cause in enumerate(causes) if key.startswith(cause)), len(causes))


def batch_differences(sides: Sides) -> list[Difference]:
    """Return the first step whose batches differ, with their token counts.

    Completions of a rollout trainer after step 1 depend on what it learned, so their difference
    belongs to the trajectory.
    """
    before, after = sides.read(lambda exact: exact.get("batches", []))
    common = min(len(before), len(after))
    differing = [step for step in range(common) if _others(before[step], after[step])]
    if not differing:
        return _fed_differences(before[:common], after[:common])
    first = differing[0]
    if all(
        same_rows(before[s], after[s]) and cut_otherwise(before[s], after[s]) for s in differing
    ):
        return [_cut(before[:common], after[:common], first, len(differing))]
    micro = sum(len(_others(before[step], after[step])) for step in differing)
    signal, was, now, detail = _described(before[:common], after[:common], first)
    stage = "batches"
    if first > 0 and is_rollout(sides.current):
        stage, signal = "trajectory", "sampled completions"
    return [learned(stage, signal, was, now, detail, count=micro, step=first + 1)]


CHANGED_BEFORE_MODEL = "fed_sha256"
"""The signal of batches that a loop changes between its `DataLoader` and the model."""
FED: tuple[Literal["fed_sha256", "fed_floats_sha256"], ...] = ("fed_sha256", "fed_floats_sha256")


def _fed_differences(before: Steps, after: Steps) -> list[Difference]:
    """Return the difference in what entered the model of equal batches. After step 1 it may depend
    on what was learned, so it belongs to the trajectory then."""
    differing = [
        (step, was.get(key), now.get(key))
        for step, pairs in enumerate(zip(before, after, strict=True))
        for was, now in zip(*pairs, strict=False)
        for key in FED
        if None not in (was.get(key), now.get(key)) and was.get(key) != now.get(key)
    ]
    if not differing:
        return []
    first, was, now = differing[0]
    words = (
        "the DataLoader yields equal batches, but other values enter the model, from step "
        f"{first + 1} on"
    )
    more = {"count": len({step for step, _, _ in differing}), "step": first + 1}
    stage = "trajectory" if first else "batches"
    return [learned(stage, CHANGED_BEFORE_MODEL, short(was), short(now), words, **more)]


def not_seen(*sides: RunRecord) -> str:
    """Return in words what of the batches a side did not see; empty if all was seen."""
    looks = [side.exact.get("batches", []) for side in sides]
    micro = (one for steps in looks for step in steps for one in step)
    names = sorted({TARGETS.get(name, name) for one in micro for name in one.get("unseen", [])})
    if any(steps and not steps[0] for steps in looks):
        names.insert(0, "the batch of step 1")
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    several = len(names) > 1 or "targets" in "".join(names)
    verb = "were" if several else "was"
    return f"{', '.join(names[:3])}{more} {verb} not seen" if names else ""


TARGETS = {"labels": "labels or other targets"}
"""What is not seen of a loop that computes its loss outside of the model."""


def _cut(before: Steps, after: Steps, first: int, steps: int) -> Difference:
    """Return a difference in micro-batches alone: most trainers still compute the same update."""
    was, now = len(before[first]), len(after[first])
    words = f"the same rows in {now} micro-batches per step, {was} in the baseline"
    if was == now:
        words = f"the same rows in different micro-batches, from step {first + 1} on"
    pads = [total(side, "pad_tokens") for side in (before, after)]
    if pads[0] != pads[1]:
        words += f" (pad tokens {_count(pads[0])} -> {_count(pads[1])} over {len(before)} steps)"
    return Difference(
        "batches", "micro_batches", was, now, count=steps, detail=words, step=first + 1
    )


EARLIER: Literal["earlier_sha256"] = "earlier_sha256"
"""The signal of equal batches before which the model was called with other values."""


def _others(before: Sequence[Micro], after: Sequence[Micro]) -> list[tuple[Micro, Micro]]:
    """Return the micro-batches of a step that differ; one that a side lacks is empty."""
    pairs = zip_longest(before, after, fillvalue=Micro())
    return [(was, now) for was, now in pairs if _other(was, now)]


def _other(was: Micro, now: Micro) -> bool:
    """Whether other values entered the model. More or fewer calls with them are work."""
    as_often = was.get("earlier_calls") == now.get("earlier_calls")
    earlier = as_often and was.get(EARLIER) != now.get(EARLIER)
    return was.get("sha256") != now.get("sha256") or earlier


def _described(before: Steps, after: Steps, first: int) -> tuple[str, Any, Any, str]:
    """Return (signal, baseline, current, sentence): token totals if they differ, else the hash."""
    totals = []
    for key in TOKEN_COUNTS:
        was, now = total(before, key), total(after, key)
        if was != now and None not in (was, now):
            totals.append((key, was, now))
    place = f"from step {first + 1} on"
    # That no label is EOS any more says more than how many labels that leaves.
    totals.sort(key=lambda one: (one[0], one[2]) != ("eos_labels", 0))
    if totals:
        key, was, now = totals[0]
        words = ", ".join(f"{k.replace('_', ' ')} {a:,} -> {b:,}" for k, a, b in totals)
        return key, was, now, f"{words} over {len(before)} steps, {place}"
    pairs = [pair for steps in zip(before, after, strict=True) for pair in _others(*steps)]
    same = all(was.get("sha256") == now.get("sha256") for was, now in pairs)
    signal: Literal["sha256", "earlier_sha256"] = EARLIER if same else "sha256"
    hashes = ((was.get(signal), now.get(signal)) for was, now in pairs)
    was, now = map(short, next(pair for pair in hashes if pair[0] != pair[1]))
    words = "other values in the calls before the last" if same else _without_counts(before, after)
    return signal, was, now, f"{words}, {place}"


def _without_counts(before: Steps, after: Steps) -> str:
    """Describe the difference of batches with equal token counts, by their row hashes."""
    sides = [[micro.get("rows") for step in side for micro in step] for side in (before, after)]
    if not all(rows for side in sides for rows in side):
        return "different values, same shape"
    if sides[0] == sides[1]:
        return "same sequences, different masks or labels"
    counted = all(total(side, "input_tokens") is not None for side in (before, after))
    return "different tokens, equal counts" if counted else "different sequences or order"


def _count(total: int | None) -> str:
    return "not counted" if total is None else f"{total:,}"


def total(steps: Steps, key: TokenCount) -> int | None:
    """Sum a count over all micro-batches; None if one did not record it."""
    micro = [micro for step in steps for micro in step]
    return sum(one[key] for one in micro) if micro and all(key in one for one in micro) else None


ELSEWHERE = ("attention", "policy_sha256", "rounded_to")
"""Model facts judged by other signals: the work, or the hash of the parameters."""


def model_differences(sides: Sides) -> list[Difference]:
    """Compare initial parameters, trainable parameters, dtypes and the reference model."""
    found = []
    before: Mapping[str, Any]
    before, after = sides.read(lambda exact: exact.get("model", {}))
    for key in dict.fromkeys((*after, *before)):
        was, now = before.get(key), after.get(key)
        if key in ELSEWHERE or was == now or not (was or now):
            continue
        difference = _model_difference(key, was, now)
        if key == "trainable_tensors":
            groups = (before.get("trainable_groups") or {}, after.get("trainable_groups") or {})
            difference = replace(difference, detail=difference.detail + _in_groups(*groups))
        found.append(difference)
    order = ("trainable_tensors", "trainable_parameters", "dtypes", "parameters")
    return sorted(found, key=lambda d: order.index(d.signal) if d.signal in order else len(order))


def _in_groups(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return the end of a sentence: the module groups whose trainable parameters differ."""
    names = [
        name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)
    ]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f" ({', '.join(names[:2])}{more})" if names and before and after else ""


def _model_difference(key: str, was: Any, now: Any) -> Difference:
    count = 1
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        changed = [k for k in dict.fromkeys((*was, *now)) if was.get(k) != now.get(k)]
        count = len(changed)
        was, now = ({k: side.get(k) for k in changed} for side in (was, now))
        words = ", ".join(f"{k} {was[k] or 0} -> {now[k] or 0}" for k in changed[:4])
    else:
        words = f"{short(was)} -> {short(now)}"
    words = f"{key.replace('_', ' ')} {words}"
    return learned("model", key, short(was), short(now), words, count=count)


def rows_of(micro_batches: Iterable[Micro]) -> dict[str, Counter[str]]:
    """Return hashes of a step's rows by the name of their ids, if a mask shows the padding."""
    found: dict[str, Counter[str]] = {}
    for micro in micro_batches:
        for name, rows in micro.get("rows", {}).items():
            masks = {name.replace("input_ids", "attention_mask"), f"{name.removesuffix('ids')}mask"}
            if masks & (set(micro.get("shapes", ())) - {name}):
                found.setdefault(name, Counter()).update(rows)
    return found


def same_rows(before: Sequence[Micro], after: Sequence[Micro]) -> bool:
    """Whether two steps train on the same rows, in any order and any micro-batches."""
    rows = rows_of(before)
    return bool(rows) and rows == rows_of(after)


def cut_otherwise(before: Sequence[Micro], after: Sequence[Micro]) -> bool:
    """Whether the number of micro-batches differs, or the same rows are in different ones."""
    if len(before) != len(after):
        return True
    pairs = zip(before, after, strict=True)
    return same_rows(before, after) and any(rows_of([a]) != rows_of([b]) for a, b in pairs)


def same_size(before: Sequence[Micro], after: Sequence[Micro]) -> bool:
    """Whether two steps have the same rows or tensor sizes: then their work can be compared, in
    any micro-batches."""
    return same_rows(before, after) or _numbers(before) == _numbers(after)


def _numbers(micro_batches: Iterable[Micro]) -> Counter[str]:
    found: Counter[str] = Counter()
    for micro in micro_batches:
        found["input_tokens"] += micro.get("input_tokens", 0)
        for name, shape in micro.get("shapes", {}).items():
            found[name] += prod(shape)
    return found


INPUTS = (data_differences, batch_differences, model_differences)
"""In the order in which training makes them."""
