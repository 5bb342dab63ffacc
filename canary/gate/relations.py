"""The answer of the training job's `canary check`, judged with what the base branch showed.

The answer comes from the training job, so a stranger may have written it. It can only add failures
and warnings to a comparison. Without a usable answer there is an `error`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from canary.baseline.ancestry import Ancestry
from canary.baseline.history import is_history
from canary.baseline.relations import stored_relations
from canary.check.run import Checked, wanted_relations
from canary.check.schema import FILE
from canary.check.stored import read_check
from canary.compare.relations import Before, relation_checks, with_relations
from canary.compare.report import Comparison
from canary.config.check_keys import known_relations
from canary.config.load import LoadedConfig
from canary.errors import CanaryError, RecordError
from canary.gate.manifest import Part
from canary.gate.records import Records
from canary.record.types import RunRecord

TRY_AGAIN = "read the log of the training job"


def answer_of(records: Records, part: Part, base: LoadedConfig | None) -> Checked:
    """Return the answer that the training job left for one config.

    Raises:
        RecordError: there is none, it cannot be read, or it was not asked what the base branch's
            config wants.
    """
    if part.check:
        raise RecordError(" ".join(part.check.split()).rstrip("."))
    file = records.root / part.folder / FILE
    try:
        found = read_check(file)
    except CanaryError as problem:
        if not file.exists():
            hint = "give both jobs `check: true`"
            raise RecordError("the training job left none", hint) from None
        said = problem.message.replace(f"{file}", f"{part.folder}/{FILE}")
        raise RecordError(said, TRY_AGAIN) from problem
    if base is not None:
        _require_asked(found, base)
    return found


def _require_asked(found: Checked, base: LoadedConfig) -> None:
    """Refuse an answer to other questions than those of the base branch's config."""
    section = base.config.check
    answered = [one["relation"] for one in found.outcomes]
    missing = [name for name in wanted_relations(section) if name not in answered]
    if not section.quick:
        left_out = [relation.id for relation, _ in found.of("not asked")]
        missing += [name for name in wanted_relations(section) if name in left_out]
    if missing:
        raise RecordError(
            f"it lacks {missing[0]}, which the base branch's config wants", "train again"
        )
    unknown = [name for name in answered if name not in known_relations(section)]
    if unknown:
        raise RecordError(
            f"it names {unknown[0]}, a relation that the base branch's config does not have",
            "add it there first",
        )


def with_answer(found: Comparison, checked: Checked, before: Before | None) -> Comparison:
    """Return the comparison with a check for each broken relation."""
    return with_relations(found, relation_checks(checked.pairs(), before))


def without_answer(found: Comparison, reason: str) -> Comparison:
    """Return the comparison of a run without a usable answer: an `error`, unless it is already
    worse."""
    if found.verdict == "regression":
        return replace(found, notes=(*found.notes, f"no usable answer of canary check: {reason}"))
    line = f"Error: no usable answer of canary check: {reason}."
    return replace(found, verdict="error", first_line=line, accepted=None)


def before_of(
    history: Path | None, record: RunRecord, ancestry: Ancestry | None, without: str
) -> Before | None:
    """Return what the base showed; None if nothing is stored.

    Raises:
        RecordError: a stored run cannot be read.
    """
    if history is None or not is_history(history):
        return None
    found = stored_relations(history, record, ancestry, without)
    return None if found is None else Before(found.statuses, found.commit[:9])
