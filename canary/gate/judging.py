"""Judge one canary with the base branch's config: against the stored runs, or in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from canary.baseline.ancestry import Ancestry
from canary.baseline.comparability import is_imported, machine_key, slug
from canary.baseline.history import Selection, drawer, drawers, entries, is_history, select
from canary.baseline.origin import SHA
from canary.campaign.pairs import Plan
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.paths import require_same_machine
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds, from_config
from canary.compare.timing.lane import DECISIONS
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.compare.verdict import MIN_HISTORY
from canary.config.load import LoadedConfig
from canary.config.spans import WARMUP, steps_of
from canary.errors import CanaryError, RecordError, counted
from canary.gate.base_config import AT_LEAST, AT_MOST
from canary.gate.records import Mode, Part, Records
from canary.github.status import Answer
from canary.record.types import RunRecord
from canary.report.bisect_hint import Known, hint_of

LONGEST_NAME = 64
"""Characters in a config's `name`."""


@dataclass(frozen=True)
class Grounds:
    """What one canary is judged with; nothing here comes from the untrusted training job."""

    config: str
    base: LoadedConfig | None
    """The base branch's config; None if the pull request adds it."""
    history: Path | None
    """The baseline branch's files; None before its first run."""
    ancestry: Ancestry | None
    accept: str | None = None
    label: str = ""
    """See `Comparison.label`."""
    compare: Mode = "baseline"
    """Set by the workflow, not by the records."""
    head_sha: str = ""
    branch: str = "canary-baselines"
    source: SourceChanges = field(default_factory=SourceChanges)
    """The pull request's changes; only the diagnosis uses them."""
    path: str = ""
    """The config's path in the repository."""
    ahead: int | None = None
    """Commits of the head that its merge base lacks; None if unknown."""
    recording: bool = False
    """Whether the run is the default branch's and enters the baseline."""

    @property
    def thresholds(self) -> tuple[Thresholds, str]:
        """The thresholds of the base branch's config, and their tier's name."""
        if self.base is None:
            return DEFAULT_THRESHOLDS, "default"
        section = self.base.config.thresholds
        changed = section.model_dump(exclude_none=True, exclude={"base_tier"})
        how = ", adjusted in the base branch's config" if changed else ""
        return from_config(section), section.base_tier + how


def error(name: str, message: str) -> Answer:
    """Return an `error` with its reason."""
    return Answer(name, Comparison("error", f"Error: {message}."))


def one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def commit_of(run: RunRecord) -> str:
    """Return the run's commit, only if it is a valid SHA: it becomes an output of the step."""
    sha = str(run.git.get("sha") or "")
    return sha if SHA.fullmatch(sha) else ""


def judge(grounds: Grounds, records: Records) -> Answer:
    """Judge one config; unusable records give an `error`, never a pass."""
    name = grounds.base.config.name if grounds.base else Path(grounds.config).stem
    try:
        part = _part(grounds, records)
        judged = (_pairs if part.compare == "ab" else _alone)(grounds, records, part)
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


def _part(grounds: Grounds, records: Records) -> Part:
    """Return the records of one config; RecordError if it has none."""
    part = next((one for one in records.manifest.parts if one.config == grounds.config), None)
    if part is None:
        raise RecordError(
            records.manifest.error
            or f"the run left no record of {grounds.config}; "
            "give both jobs the same `config`, or read the training job's log"
        )
    if part.error:
        raise RecordError(part.error)
    if part.compare != grounds.compare:
        raise RecordError(
            f"the training job has compare: {part.compare}, the reporting job has compare: "
            f"{grounds.compare}; set both to the same"
        )
    return part


def _other_commit(grounds: Grounds, judged: Answer) -> list[str]:
    """Note a run of another commit than the head, such as GitHub's merge commit."""
    shas = {str(run.git["sha"]) for run in judged.records if run.git.get("sha")}
    others = sorted(shas - {grounds.head_sha}) if grounds.head_sha else []
    return [
        f"the run trained commit {sha[:9]}, not the head {grounds.head_sha[:9]}" for sha in others
    ]


def _runs(grounds: Grounds, records: Records, part: Part, role: str) -> list[RunRecord]:
    """Return the runs of one role of a part, under the base branch's name, cut to a valid length.
    With a new name of the pull request's they would find no baseline.

    Raises:
        RecordError: as `Records.runs`.
    """
    name = grounds.base.config.name if grounds.base else None
    found = records.runs(part, role)
    return [one.model_copy(update={"name": name or one.name[:LONGEST_NAME]}) for one in found]


def _alone(grounds: Grounds, records: Records, part: Part) -> Answer:
    """Judge against the stored runs."""
    current = _runs(grounds, records, part, "current")
    if not current:
        reason = f"the run left no record of {grounds.config}; read the training job's log"
        raise RecordError(reason)
    newest = current[-1]
    _require_steps(current, grounds.base)
    chosen, notes = _selection(grounds, newest)
    notes += [_repeated(run) for run in _runs(grounds, records, part, "failed")]
    _require_no_other_baseline(grounds, newest, chosen)
    _require_young_branch(grounds, chosen)
    _require_same_recorder(current, chosen.records)
    noise = _noise_of(chosen, newest)
    how = {"noise": noise, "history": True, "anchor": chosen.anchor}
    judged = _compared(grounds, current, chosen.records, notes, **how)
    hint = hint_of(judged.comparison, current, chosen.records, _known_of(grounds, chosen))
    return replace(judged, hint=hint)


def _pairs(grounds: Grounds, records: Records, part: Part) -> Answer:
    """Judge alternating runs of base and head, in pairs."""
    base = _runs(grounds, records, part, "base")
    head = _runs(grounds, records, part, "head")
    _require_steps([*base, *head], grounds.base)
    _require_same_recorder(head, base)
    repeated = [_repeated(run) for run in (*base, *head) if run.status != "completed"]
    base, head = paired(base, head)
    if not head or not base:
        raise RecordError(f"the run left no pair of base and head for {grounds.config}")
    complete = all(record.status == "completed" for record in (*base, *head))
    pairs = counted(len(head), "pair")
    notes = [f"{pairs}, base and head alternating, each run in a separate process"]
    return _compared(
        grounds,
        head,
        base,
        notes + repeated,
        paired=complete and len(base) == len(head),
        budget=Plan().error_budget(min(len(head), max(DECISIONS))),
    )


def _compared(
    grounds: Grounds,
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    notes: Sequence[str],
    **how: Any,
) -> Answer:
    """Compare by the base branch's thresholds and gates."""
    thresholds, tier = grounds.thresholds
    found = compare_to_baseline(
        current,
        baseline,
        thresholds,
        metrics=grounds.base.config.metrics if grounds.base else (),
        accept=grounds.accept,
        source=grounds.source,
        **how,
    )
    found = replace(found, tier=tier, notes=(*found.notes, *notes))
    name = current[-1].name or Path(grounds.config).stem
    return Answer(name, found, records=tuple(current), baseline=tuple(baseline))


def paired(
    base: Sequence[RunRecord], head: Sequence[RunRecord]
) -> tuple[list[RunRecord], list[RunRecord]]:
    """Return the runs to judge: completed pairs. If a side failed twice, its failures against the
    other side's completed runs."""
    done, done_head = ([r for r in runs if r.status == "completed"] for runs in (base, head))
    failed = [r for r in head if r.status != "completed"]
    if _broken(head) or (len(failed) >= 2 and len(done) == len(base)):
        return done, failed[-2:]
    if _broken(base):
        return list(base[-2:]), done_head
    pairs = min(len(done), len(done_head))
    return done[:pairs], done_head[:pairs]


def _broken(runs: Sequence[RunRecord]) -> bool:
    """Whether the last two runs failed."""
    return len(runs) >= 2 and all(run.status != "completed" for run in runs[-2:])


def _repeated(run: RunRecord) -> str:
    return f"a run ended as {run.status} ({one_line(run.reason or 'no reason given')})"


def _keyed(record: RunRecord, base: LoadedConfig | None) -> RunRecord:
    """Return the record with the base branch's dtype: a changed dtype must still find its
    baseline."""
    if base is None:
        return record
    config = record.config | {"dtype": base.config.dtype}
    return record.model_copy(update={"config": config})


def _selection(grounds: Grounds, record: RunRecord) -> tuple[Selection, list[str]]:
    """Return the stored runs for a record, and notes about those that are left out."""
    if grounds.history is None or not is_history(grounds.history):
        note = [] if grounds.recording else [f"branch {grounds.branch} holds no runs yet"]
        return Selection((), (), None, 0), note
    asked = _keyed(record, grounds.base)
    if not grounds.recording:
        # Only storing a run again may exclude its stored copy; a record's id must not.
        asked = asked.model_copy(update={"run_id": ""})
    chosen = select(grounds.history, asked, ancestry=grounds.ancestry)
    stored = counted(chosen.elsewhere, "stored run")
    left_out = f"{stored} not used: this commit does not descend from theirs"
    return chosen, [left_out] if chosen.elsewhere else []


def _noise_of(chosen: Selection, record: RunRecord) -> NoiseModel | None:
    """Return the measured noise of the stored runs, if there is any."""
    if chosen.noise_file is None:
        return None
    noise = load_noise(chosen.noise_file)
    require_same_machine(noise, record)
    return noise


def _known_of(grounds: Grounds, chosen: Selection) -> Known:
    """Return the config and the number of commits since the newest stored run: its distance from
    the merge base, and the head's own commits."""
    commits = None
    if chosen.records and grounds.ancestry is not None and grounds.ahead is not None:
        behind = grounds.ancestry.distance(commit_of(chosen.records[-1]))
        commits = None if behind is None else behind + grounds.ahead
    return Known(grounds.path, commits, grounds.head_sha)


def _require_no_other_baseline(grounds: Grounds, record: RunRecord, chosen: Selection) -> None:
    """Raise RecordError if only other machines have a baseline, or if all stored runs of this one
    are red: the run must not pass as a first one."""
    if chosen.records or chosen.elsewhere or grounds.recording:
        return
    if grounds.history is None or not is_history(grounds.history):
        return
    name = slug(record.name or "canary")
    found = (one for one in drawers(grounds.history) if one.parent.name == name)
    known = [one.name for one in found if entries(one)]
    if not known:
        return
    if red := entries(drawer(grounds.history, _keyed(record, grounds.base))):
        raise RecordError(
            f"all {len(red)} stored runs of this machine are red; mend the default branch and run "
            "it again, or accept one of its runs"
        )
    device = ""
    if grounds.base is not None and grounds.base.config.device != record.config.get("device"):
        device = f"device {grounds.base.config.device} -> {record.config.get('device')}: "
    raise RecordError(
        f"{device}the baseline ran on {', '.join(known[:3])}, this run on {machine_key(record)}; "
        "run the default branch on this machine first"
    )


def _require_young_branch(grounds: Grounds, chosen: Selection) -> None:
    """Raise RecordError if the branch began before the baseline: it must not pass for that."""
    count = len(chosen.records)
    if not grounds.recording and count < MIN_HISTORY <= count + chosen.elsewhere:
        raise RecordError(
            f"the branch is too old to judge: it descends from {count} of "
            f"{count + chosen.elsewhere} stored runs, {MIN_HISTORY} are needed; merge the base "
            "branch into it"
        )


def _require_same_recorder(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> None:
    """Raise RecordError for an imported run whose baseline the canary recorded: it would be judged
    without the exact lane."""
    imported = [run for run in current if is_imported(run)]
    if imported and baseline and not is_imported(baseline[-1]):
        raise RecordError(
            f"run {imported[0].run_id} was imported, but the canary recorded its baseline; record "
            "the default branch in the same way first"
        )


def _require_steps(records: Sequence[RunRecord], base: LoadedConfig | None) -> None:
    """Raise RecordError for runs that prove less than the base branch requires."""
    if base is None:
        return
    for record in records:
        run, completed = f"run {record.run_id}", record.status == "completed"
        if completed:
            _require_import(record, base)
        for key in (*AT_LEAST, *AT_MOST):
            asked, took = getattr(base.config, key), record.config.get(key)
            if asked is None and key in AT_LEAST:
                continue  # a user's command trains as long as it wants
            asked = WARMUP if asked is None else asked
            if not isinstance(took, int):
                what = f"{key} {took!r}, which is not a number of steps"
                raise RecordError(f"{run} has {what}; train again")
            if took < asked if key in AT_LEAST else took > asked:
                verb = "requires" if key in AT_LEAST else "allows"
                what = f"{key} {took}, the base branch's config {verb} {asked}"
                raise RecordError(f"{run} has {what}; change it there first")
        if base.config.look_steps and completed and not record.exact:
            reason = record.unmeasured.get("exact", "it has no look")
            raise RecordError(f"{run} has no exact signals: {reason}")
        done = len(record.stability.loss_values)
        if record.source is not None:  # its source may have no loss
            done = max(done, *(launch.steps for launch in record.launches), 0)
        if completed and done < (steps_of(base.config) or 1):
            raise RecordError(f"{run} is marked completed after only {done} steps; train again")


def _require_import(record: RunRecord, base: LoadedConfig) -> None:
    """Raise RecordError if a completed run was not imported as the base branch says."""
    section = base.config.imports
    asked = None if section is None else section.model_dump()
    if (record.source is None) == (section is None) and record.config.get("import") == asked:
        return
    if section is None:
        what = "was imported, the base branch's config has no `import`"
        raise RecordError(f"run {record.run_id} {what}")
    raise RecordError(
        f"run {record.run_id} was not read as `import` in the base branch's config says; "
        "change it there first"
    )
