"""Turns checks into one verdict and its first line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from canary.compare.checks import CHECKS, SPEED, accepted_with, is_metric_gate
from canary.compare.exact.changes import MOST_KEYS, named, shown
from canary.compare.exact.learning_stages import LENGTH
from canary.compare.exact.sides import show
from canary.compare.exact.stages import LEARNED_STAGES
from canary.compare.report import Check, Comparison, Difference, KeyChange, Verdict
from canary.compare.rules.comparison import BOTH
from canary.errors import counted

NAMED_STAGES = {
    "batches": "batches",
    "first_loss": "losses",
    "first_gradient": "gradients",
    "first_update": "updates",
    "trajectory": "losses",
}
"""The stages that "Learns the same" names, and their words."""
MAY_LACK = frozenset(("batches", "first_gradient"))
"""Of these a plain loop may not show one: equal losses and updates still need equal ones."""
MIN_HISTORY = 3


def with_acceptance(checks: Sequence[Check], environment: Sequence[KeyChange]) -> tuple[Check, ...]:
    """Turn failed checks into `changed` if a change of this comparison is in `accepted_with`."""
    changed = {check.name for check in checks if check.status == "changed"}
    accepted = {"learning"} if changed else set()
    if changed and any(c.key.startswith("packages.") and not c.cosmetic for c in environment):
        accepted.add("packages")
    if changed & {"data", "batches"}:
        accepted.add("rows")
    return tuple(
        replace(check, status="changed")
        if check.status == "fail" and accepted & set(accepted_with(check))
        else check
        for check in checks
    )


def decide(
    checks: Sequence[Check],
    *,
    enough_history: bool,
    imported: bool = False,
    exact_only: bool = False,
    same_program: bool = False,
) -> Verdict:
    """Return the verdict for usable records.

    `imported`: a record has no exact lane, so a gate on a metric or a timing check must pass.
    `exact_only`: both sides ended after their looks, so speed was not asked. `same_program`: code,
    config, packages and work are equal, so an undecided clock is no reason for doubt."""
    statuses = {check.status for check in checks}
    if "fail" in statuses:
        return "regression"
    if "changed" in statuses:
        return "changed"
    if not enough_history:
        return "no-baseline"
    undecided = {check.lane for check in checks if check.status == "inconclusive"}
    if undecided - ({"timing"} if same_program else set()):
        return "inconclusive"
    if imported:
        return "pass" if _judged_of_imported(checks) else "inconclusive"
    lanes = {check.lane for check in checks if check.status in ("pass", "warn")}
    if (exact_only or same_program) and learning_was_judged(checks):
        return "pass"
    return "pass" if {"exact", "timing"} <= lanes else "inconclusive"


def learning_was_judged(checks: Sequence[Check]) -> bool:
    """Whether losses and updates were compared and are equal."""
    judged = {check.name for check in checks if check.status in ("pass", "warn")}
    return {"first_loss", "first_update", "trajectory"} <= judged


def _judged_of_imported(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that can make a comparison with an imported run pass."""
    return [
        check
        for check in checks
        if check.status in ("pass", "warn")
        and ((check.lane, check.group) == ("timing", "performance") or is_metric_gate(check.name))
    ]


def first_line(
    found: Comparison, *, history: int, imported: bool = False, same_program: bool = False
) -> str:
    """Return the verdict as a sentence. `history`: runs of the baseline; others as in `decide`."""
    checks = found.checks
    if found.verdict == "regression":
        more = _more(ordered_failures(checks), "check")  # those of the list "Failed checks"
        words = f"Regression: {leading_failure(checks).message}"
        return f"{cut_to_fit(words, LONGEST - 1 - len(more))}{more}."
    if found.verdict == "changed":
        return _changed_line(found)
    if found.verdict == "no-baseline":
        return (
            f"No baseline yet: {history} of {MIN_HISTORY} runs are stored. Store "
            f"{MIN_HISTORY - history} more of the default branch."
        )
    same = _learning_unchanged(found)
    if found.verdict == "inconclusive":
        if imported and not any(check.status == "inconclusive" for check in checks):
            return _nothing_judged(checks)
        return _inconclusive_line(checks, same)
    return _pass_line(checks, same, imported, same_program)


def ordered_failures(checks: Sequence[Check]) -> list[Check]:
    """Return the failed checks, the most important first."""
    failed = [check for check in checks if check.failed]
    fatal = [name for name, row in CHECKS.items() if row.fatal]

    def key(check: Check) -> tuple[int, int]:
        if check.name in fatal:
            return (0, fatal.index(check.name))
        order = {"rule": 1, "timing": 2, "trend": 3, "exact": 4}
        return (order[check.lane], 0)

    return sorted(failed, key=key)


def leading_failure(checks: Sequence[Check]) -> Check:
    """Return the check that the first line of a regression, or of a change, is about."""
    every = ordered_failures(checks)
    failed = [check for check in every if check.status == "fail"]
    if not failed:
        return _leading_change(every)[0]
    learned = [c for c in failed if c.lane == "exact" and c.group == "correctness"]
    return learned[0] if learned and failed[0].lane == "exact" else failed[0]


def _leading_change(checks: Sequence[Check]) -> tuple[Check, bool]:
    """Return the check that a change is about, and whether it is a stage of learning."""
    changed = [check for check in checks if check.status == "changed"]
    moved = next((check for check in changed if check.name in LEARNED_STAGES), None)
    worse = [check for check in changed if accepted_with(check)]
    return moved or (worse or changed)[0], moved is not None


LONGEST = 120
"""Characters of the first line of a failing verdict."""


def _changed_line(found: Comparison) -> str:
    start = f"Changed and accepted ({found.accepted})" if found.accepted else "Changed"
    learned = next((one for one in found.differences if one.learned), None)
    lead, moved = _leading_change(found.checks)
    words = lead.message
    if moved and learned is not None:
        words = finding(learned, _count(found.differences, learned))
    return f"{cut_to_fit(f'{start}: {words}', LONGEST - 1)}."


IN_WORDS = {
    "data": "the dataset differs",
    "batches": "batches differ",
    "model": "the initial model differs",
    "first_loss": "the loss differs",
    "first_gradient": "the gradient differs",
    "first_update": "the update differs",
    "grad_norm": "the gradient norm differs",
    "learning_rate": "the learning rate differs",
    "applied_gradient": "the gradient at the optimizer differs",
    "tokenizer.chat_template_sha256": "the chat template differs",
    "dtypes": "the precision of the parameters differs",
    "trainable_tensors": "the trainable parameters differ",
    "trainable_parameters": "the trainable parameters differ",
}
"""Of a stage, or of one of its signals."""


def _count(differences: Sequence[Difference], first: Difference) -> Difference | None:
    """Return the first count that differs with the data set or the batches that differ first."""
    stages = {"data": ("data", "batches"), "batches": ("batches",)}.get(first.stage, ())
    found = (one for one in differences if one.stage in stages)
    return next((o for o in found if type(o.baseline) is type(o.current) is int), None)


def finding(difference: Difference, count: Difference | None = None) -> str:
    """Return what differs first, from which step on, and its numbers, in a few words. `count`: of
    the data set or the batches."""
    if difference.signal == LENGTH:
        return difference.detail
    signal = difference.signal.replace("_", " ")
    verb = "differ" if signal.endswith("s") and not signal.endswith("ss") else "differs"
    words = IN_WORDS.get(difference.stage, f"the {signal} {verb}")
    words = "the tokenizer differs" if signal.startswith("tokenizer") else words
    words = IN_WORDS.get(difference.signal, words)
    step = difference.step or (None if difference.stage in ("data", "model") else 1)
    start = f" from step {step}" if step else ""
    was, now = difference.baseline, difference.current
    numbers = all(isinstance(one, int | float) for one in (was, now))
    numbers = numbers and difference.stage not in ("data", "batches", "model", "rollout")
    change = f"{show(was)} -> {show(now)}" if numbers else ""
    if count is not None:
        name = count.signal.removeprefix("tokenizer.")
        name = name if "." in name else name.replace("_", " ")
        change = f"{name} {count.baseline:,} -> {count.current:,}"
    on = " on" if step and change else ""
    return f"{words}{start}{on}{f': {change}' if change else ''}"


def cut_to_fit(text: str, most: int) -> str:
    """Return the text without its last clauses or words, so that it fits."""
    if len(text) <= most:
        return text
    clauses = text[: most + 1].rpartition("; ")[0]
    return clauses or f"{text[: most - 3].rpartition(' ')[0]} ..."


MOST_PACKAGES = 3


def _changed_keys(found: Comparison) -> str:
    """Return the changed keys that are not cosmetic; of one alone, its values too."""
    every = (*found.config_changes, *found.environment_changes)
    causes = [change for change in every if not change.cosmetic]
    keys = sum(not change.cosmetic for change in found.config_changes)
    if len(causes) == 1:
        return f"{causes[0].key} {shown(causes[0].baseline)} -> {shown(causes[0].current)}"
    return named([change.key for change in causes], max(MOST_PACKAGES, min(keys, MOST_KEYS)))


def _inconclusive_line(checks: Sequence[Check], same: str) -> str:
    undecided = [check for check in checks if check.status == "inconclusive"]
    # A training that does not repeat itself explains the rest, so it comes first.
    undecided.sort(key=lambda check: check.name != "repeatability")
    inputs = next((c for c in checks if c.status == "warn" and c.name in LEARNED_STAGES), None)
    tail = f" Warning: {inputs.name}: {inputs.message}." if inputs else ""
    gates = [check for check in undecided if is_metric_gate(check.name)]
    timing = [check for check in undecided if check.lane == "timing"]
    if undecided and same and len(gates) + len(timing) == len(undecided):
        gate = f" Not decided: {gates[0].message}{_more(gates, 'gate')}." if gates else ""
        speed = f" Speed is not decided: {timing[0].message}." if timing else ""
        return f"{same}{gate}{speed}{tail}"
    if undecided:
        return f"Inconclusive: {undecided[0].message}.{tail}"
    skipped = next(
        (c for c in checks if c.lane in ("exact", "timing") and c.status == "skip"), None
    )
    lanes = {check.lane for check in checks if check.status in ("pass", "warn")}
    untimed = next((check for check in checks if check.unjudged == "untimed"), None)
    if untimed is not None and (same or "exact" in lanes):
        speed = f"{same} Speed" if same else "Inconclusive: no exact check failed, but speed"
        return f"{speed} was not measured: {untimed.message}.{tail}"
    absent = " and ".join(lane for lane in ("exact", "timing") if lane not in lanes)
    return (
        f"Inconclusive: no {absent} check ran "
        f"({skipped.message if skipped else 'none recorded'}).{tail}"
    )


def _more(checks: Sequence[Check], what: str) -> str:
    count = len(checks) - 1
    return f" ({counted(count, f'more {what}')})" if count else ""


def _learning_unchanged(found: Comparison) -> str:
    """Return a sentence if what is learned was compared and is equal; otherwise empty.

    It names what is equal only within rounding, what was not recorded, and changed keys."""
    checks = found.checks
    judged = {
        check.name: check
        for check in checks
        if (check.lane, check.group) == ("exact", "correctness") and check.status != "skip"
    }
    if any(check.status != "pass" for check in judged.values()):
        return ""
    missing = [stage for stage in NAMED_STAGES if stage not in judged]
    unrecorded = MAY_LACK & {check.name for check in checks if check.unjudged == "unrecorded"}
    if len(missing) > 1 or not unrecorded.issuperset(missing):
        return ""
    *others, last = dict.fromkeys(word for stage, word in NAMED_STAGES.items() if stage in judged)
    equal = f"{', '.join(others)} and {last} are identical"
    rounded = next((check.message for check in judged.values() if check.delta), "")
    lacks = "".join(f"; {NAMED_STAGES[stage]} were not recorded" for stage in missing)
    keys = _changed_keys(found)
    steps = found.places.steps  # of looks alone
    first = f" in the first {counted(steps, 'step') if steps > 1 else 'step'}" if steps else ""
    changed = f" Changed: {keys}." if keys else ""
    return f"Learns the same{first}: {rounded or equal}{lacks}.{changed}"


NOT_EXACT = "exact signals were not recorded, because a run was imported"


def _nothing_judged(checks: Sequence[Check]) -> str:
    """Say that an imported run was compared in nothing that can make it pass."""
    skipped = next((c for c in checks if c.lane == "timing" and c.status == "skip"), None)
    why = f" ({skipped.message})" if skipped else ""
    return (
        f"Inconclusive: no gate of `metrics` and no speed was judged{why}, and {NOT_EXACT}. Add "
        "gates to `metrics` in the config, or in a file for --threshold-file."
    )


def _pass_line(checks: Sequence[Check], same: str, imported: bool, same_program: bool) -> str:
    passed = {check.name: check.message for check in checks if check.status == "pass"}
    timed = (name for name in SPEED if CHECKS[name].lane == "timing")
    speed = next((f"; {passed[name]}" for name in timed if name in passed), "")
    new = [check for check in checks if not check.message.endswith(BOTH)]
    warned = [check for check in new if check.status == "warn"]
    worse = [check for check in warned if check.lane == "timing" and check.unjudged != "stalled"]
    if worse:
        others = len(warned) - 1
        more = f"; {counted(others, 'more warning')}" if others else ""
        return f"Pass, worse but within the limit: {worse[0].message}{more}."
    if same_program and any(check.status == "inconclusive" for check in checks):
        speed += "; the program is the same, so times differ only by the machine's noise"
    tail = f"; {counted(len(warned), 'warning')}: {warned[0].message}" if warned else ""
    same, _, changed = same.rstrip(".").partition(". ")
    healthy = f"{same[0].lower()}{same[1:]}" if same else "nothing got worse"
    tail += f". {changed}" if changed else ""
    if imported:
        gates = sum(is_metric_gate(check.name) for check in _judged_of_imported(checks))
        count = f"{counted(gates, 'gate')} of `metrics`" if gates else "speed alone"
        healthy = f"nothing got worse in {count}; {NOT_EXACT}"
    return f"Pass: {healthy}{speed}{tail}."
