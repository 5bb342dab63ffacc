"""Judge one canary with the base branch's thresholds: against the stored baseline, or in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from canary.campaign.pairs import Plan
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.lane import DECISIONS
from canary.config.load import LoadedConfig
from canary.config.spans import WARMUP
from canary.errors import CanaryError
from canary.gate.base_config import AT_LEAST, AT_MOST
from canary.gate.grounds import (
    Grounds,
    error,
    known_of,
    name_of,
    named,
    noise_of,
    not_first,
    one_line,
    selection,
    thresholds_of,
    too_old,
    without_exact,
)
from canary.gate.records import Part, Records
from canary.github.status import Answer
from canary.record.types import RunRecord
from canary.report.bisect_hint import hint_of


def judge(grounds: Grounds, records: Records) -> Answer:
    """Judge one config; unusable records give an `error`, never a pass."""
    name = grounds.base.config.name if grounds.base else Path(grounds.config).stem
    parts = [part for part in records.manifest.parts if part.config == grounds.config]
    if not parts:
        reason = records.manifest.error or (
            f"the run left no record of {grounds.config}; "
            "give both jobs the same `config`, or read the training job's log"
        )
        return error(name, one_line(reason))
    part = parts[0]
    if part.error:
        return error(name, one_line(part.error))
    if part.compare != grounds.compare:
        return error(
            name,
            f"the training job has compare: {part.compare}, the reporting job has compare: "
            f"{grounds.compare}; set both to the same",
        )
    try:
        judged = _pairs(grounds, records, part) if part.compare == "ab" else None
        judged = judged or _alone(grounds, records, part)
    except CanaryError as problem:
        return error(name, one_line(str(problem)))
    except Exception as problem:  # noqa: BLE001 - a stranger's record; the commit needs an answer
        return error(
            name,
            f"the record cannot be judged ({type(problem).__name__}); train again, "
            "and open an issue if it happens again",
        )
    notes = tuple(one_line(note) for note in (*part.notes, *_other_commit(grounds, judged)))
    comparison = judged.comparison
    said = replace(comparison, notes=(*comparison.notes, *notes), label=grounds.label)
    return replace(judged, comparison=said, folders=records.folders(part))


def _other_commit(grounds: Grounds, judged: Answer) -> list[str]:
    """Note a run of another commit than the head, such as GitHub's merge commit."""
    shas = {str(run.git["sha"]) for run in judged.records if run.git.get("sha")}
    others = sorted(shas - {grounds.head_sha}) if grounds.head_sha else []
    return [
        f"the run trained commit {sha[:9]}, not the head {grounds.head_sha[:9]}" for sha in others
    ]


def _runs(grounds: Grounds, records: Records, part: Part, role: str) -> list[RunRecord]:
    """Return the runs of one role of a part, under the base branch's name.

    Raises:
        RecordError: as `Records.runs`.
    """
    return [named(run, grounds.base) for run in records.runs(part, role)]


def _alone(grounds: Grounds, records: Records, part: Part) -> Answer:
    """Judge against the stored runs."""
    current = _runs(grounds, records, part, "current")
    name = name_of(grounds, current)
    if not current:
        reason = f"the run left no record of {grounds.config}; read the training job's log"
        return error(name, reason)
    problem = fewer_steps(current, grounds.base)
    if problem:
        return error(name, problem)
    chosen, notes = selection(grounds, current[-1])
    notes += tuple(_repeated(run) for run in _runs(grounds, records, part, "failed"))
    problem = (
        not_first(grounds, current[-1], chosen)
        or too_old(grounds, chosen)
        or without_exact(current, chosen.records)
    )
    if problem:
        return error(name, problem)
    thresholds, tier = thresholds_of(grounds)
    found = compare_to_baseline(
        current,
        chosen.records,
        thresholds,
        noise=noise_of(chosen, current[-1]),
        history=True,
        anchor=chosen.anchor,
        metrics=grounds.base.config.metrics if grounds.base else (),
        accept=grounds.accept,
        source=grounds.source,
    )
    found = replace(found, tier=tier, notes=(*found.notes, *notes))
    hint = hint_of(found, current, chosen.records, known_of(grounds, chosen))
    return Answer(name, found, hint=hint, records=tuple(current), baseline=chosen.records)


def _pairs(grounds: Grounds, records: Records, part: Part) -> Answer:
    """Judge alternating runs of base and head, in pairs."""
    base = _runs(grounds, records, part, "base")
    head = _runs(grounds, records, part, "head")
    name = name_of(grounds, head)
    problem = fewer_steps(base, grounds.base) or fewer_steps(head, grounds.base)
    problem = problem or without_exact(head, base)
    if problem:
        return error(name, problem)
    every = [*base, *head]
    base, head = paired(base, head)
    if not head or not base:
        return error(name, f"the run left no pair of base and head for {grounds.config}")
    thresholds, tier = thresholds_of(grounds)
    complete = all(record.status == "completed" for record in (*base, *head))
    found = compare_to_baseline(
        head,
        base,
        thresholds,
        paired=complete and len(base) == len(head),
        budget=Plan().error_budget(min(len(head), max(DECISIONS))),
        metrics=grounds.base.config.metrics if grounds.base else (),
        accept=grounds.accept,
        source=grounds.source,
    )
    notes = [f"{len(head)} pairs, base and head alternating, each run in a separate process"]
    notes += [_repeated(run) for run in every if run.status != "completed"]
    found = replace(found, tier=tier, notes=(*found.notes, *notes))
    return Answer(name, found, records=tuple(head), baseline=tuple(base))


def paired(
    base: Sequence[RunRecord], head: Sequence[RunRecord]
) -> tuple[list[RunRecord], list[RunRecord]]:
    """Return the runs to judge: completed pairs. If a side failed twice, its failures against the
    other side's completed runs."""
    done = {"base": [r for r in base if r.status == "completed"]}
    done["head"] = [r for r in head if r.status == "completed"]
    broken = {"base": list(base), "head": list(head)}
    last = {
        role: [r for r in runs[-2:] if r.status != "completed"] for role, runs in broken.items()
    }
    failed = [r for r in head if r.status != "completed"]
    if len(last["head"]) == 2 or (len(failed) >= 2 and len(done["base"]) == len(base)):
        return done["base"], failed[-2:]
    if len(last["base"]) == 2:
        return last["base"], done["head"]
    pairs = min(len(done["base"]), len(done["head"]))
    return done["base"][:pairs], done["head"][:pairs]


def _repeated(run: RunRecord) -> str:
    return f"a run ended as {run.status} ({one_line(run.reason or 'no reason given')})"


def fewer_steps(records: Sequence[RunRecord], base: LoadedConfig | None) -> str:
    """Return why the runs prove less than the base branch requires; empty if they prove enough."""
    for record in records if base else ():
        assert base is not None
        if other := _imported_otherwise(record, base):
            return other
        for key in AT_LEAST:
            asked, took = getattr(base.config, key), record.config.get(key)
            if asked is None:
                continue  # a user's command trains as long as it wants
            if not isinstance(took, int):
                return (
                    f"run {record.run_id} has {key} {took!r}, which is not a number of steps; "
                    "train again"
                )
            if took < asked:
                return (
                    f"run {record.run_id} has {key} {took}, the base branch's config requires "
                    f"{asked}; change it there first"
                )
        for key in AT_MOST:
            asked, took = getattr(base.config, key), record.config.get(key)
            asked = WARMUP if asked is None else asked
            if not isinstance(took, int) or took > asked:
                return (
                    f"run {record.run_id} has {key} {took!r}, the base branch's config allows "
                    f"{asked}; change it there first"
                )
        bare = record.status == "completed" and not record.exact
        if base.config.look_steps and bare:
            reason = record.unmeasured.get("exact", "it has no look")
            return f"run {record.run_id} has no exact signals: {reason}"
        done = len(record.stability.loss_values)
        if record.source is not None:  # its source may have no loss
            done = max(done, *(launch.steps for launch in record.launches), 0)
        if record.status == "completed" and done < (base.config.max_steps or 1):
            return f"run {record.run_id} is marked completed after only {done} steps; train again"
    return ""


def _imported_otherwise(record: RunRecord, base: LoadedConfig) -> str:
    """Return an error if a completed run was not imported as the base branch says."""
    if record.status != "completed":
        return ""
    section = base.config.imports
    asked = None if section is None else section.model_dump()
    if (record.source is None) == (section is None) and record.config.get("import") == asked:
        return ""
    if section is None:
        return f"run {record.run_id} was imported, the base branch's config has no `import`"
    return (
        f"run {record.run_id} was not read as `import` in the base branch's config says; "
        "change it there first"
    )
