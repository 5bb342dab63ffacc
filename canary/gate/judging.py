"""Judge one canary with the base branch's thresholds: against the stored baseline, or in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from canary.baseline.ancestry import SHA, Ancestry
from canary.baseline.comparability import is_imported, machine_key, slug
from canary.baseline.history import PICTURES, Selection, drawer, is_history, rows, select
from canary.campaign.pairs import Plan
from canary.check.run import Checked
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.paths import Compared, require_same_machine
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    from_config,
    tier_thresholds,
)
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.compare.timing.sequential import LOOKS
from canary.compare.verdict import MIN_HISTORY
from canary.config.load import METRICS_WARMUP, LoadedConfig
from canary.config.metric_gates import MetricGate
from canary.errors import CanaryError
from canary.gate.base_config import AT_LEAST, AT_MOST
from canary.gate.manifest import Mode, Part
from canary.gate.records import Records
from canary.gate.relations import answer_of, before_of, with_answer, without_answer
from canary.github.status import Answer
from canary.record.types import RunRecord
from canary.report.bisect_hint import Known, hint_of
from canary.report.trends import trends_of

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
    tier: str = ""
    accept: str | None = None
    compare: Mode = "baseline"
    """Set by the workflow, not by the records."""
    head_sha: str = ""
    branch: str = "canary-baselines"
    source: SourceChanges = field(default_factory=SourceChanges)
    """The pull request's changes; only the diagnosis uses them."""
    pictures: str = ""
    """Address of the branch's files, if the comment shows the picture of the stored runs."""
    path: str = ""
    """The config's path in the repository."""
    ahead: int | None = None
    """Commits of the head that its merge base lacks; None if unknown."""
    recording: bool = False
    """Whether the run is the default branch's and enters the baseline."""
    check: bool = False
    """Whether the training job asked `canary check`."""


@dataclass(frozen=True)
class Judged:
    """An answer and its records."""

    answer: Answer
    records: tuple[RunRecord, ...] = ()
    """Runs of the head, completed or not, under the base branch's name of the canary."""
    baseline_sha: str = ""
    baseline: tuple[RunRecord, ...] = ()
    """The runs that they were compared with."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Where the training job's runs are, by run id."""
    source: SourceChanges | None = None
    checked: Checked | None = None
    """The answer of `canary check`."""

    @property
    def compared(self) -> Compared:
        """The answer's comparison with its runs."""
        found = self.answer.comparison
        return Compared(found, self.records, self.baseline, self.folders, self.source)


def error(name: str, message: str) -> Judged:
    """Return an `error` with its reason."""
    return Judged(Answer(name, Comparison("error", f"Error: {message}.")))


def judge(grounds: Grounds, records: Records) -> Judged:
    """Judge one config; unusable records give an `error`, never a pass."""
    name = grounds.base.config.name if grounds.base else Path(grounds.config).stem
    part = next((part for part in records.manifest.parts if part.config == grounds.config), None)
    if part is None:
        reason = records.manifest.error or (
            f"the run left no record of {grounds.config}; "
            "give both jobs the same `config`, or read the training job's log"
        )
        return error(name, _one_line(reason))
    if part.error:
        return error(name, _one_line(part.error))
    if part.compare != grounds.compare:
        return error(
            name,
            f"the training job has compare: {part.compare}, the reporting job has compare: "
            f"{grounds.compare}; set both to the same",
        )
    try:
        judged = _pairs(grounds, records, part) if part.compare == "ab" else None
        judged = judged or _alone(grounds, records, part)
        judged = _asked(grounds, records, part, judged)
    except CanaryError as problem:
        return error(name, _one_line(str(problem)))
    except Exception as problem:  # noqa: BLE001 - a stranger's record; the commit needs an answer
        return error(
            name,
            f"the record cannot be judged ({type(problem).__name__}); train again, "
            "and open an issue if it happens again",
        )
    notes = tuple(_one_line(note) for note in (*part.notes, *_other_commit(grounds, judged)))
    comparison = judged.answer.comparison
    said = replace(comparison, notes=(*comparison.notes, *notes))
    answer = replace(judged.answer, comparison=said)
    folders = records.folders(part)
    return replace(judged, answer=answer, folders=folders, source=grounds.source)


def _asked(grounds: Grounds, records: Records, part: Part, judged: Judged) -> Judged:
    """Add what `canary check` showed, if it was asked and the training completed."""
    found = judged.answer.comparison
    if not grounds.check or found.verdict == "error" or not judged.records:
        return judged
    newest = judged.records[-1]
    if newest.status != "completed":
        return judged
    checked = None
    try:
        checked = answer_of(records, part, grounds.base)
        without = grounds.head_sha if grounds.recording else ""
        keyed = _keyed(newest, grounds.base)
        before = before_of(grounds.history, keyed, grounds.ancestry, without)
        found = with_answer(found, checked, before)
    except CanaryError as problem:
        found = without_answer(found, _one_line(str(problem)))
    return replace(judged, answer=replace(judged.answer, comparison=found), checked=checked)


def _other_commit(grounds: Grounds, judged: Judged) -> list[str]:
    """Note a run of another commit than the head, such as GitHub's merge commit."""
    shas = {str(run.git["sha"]) for run in judged.records if run.git.get("sha")}
    others = sorted(shas - {grounds.head_sha}) if grounds.head_sha else []
    return [
        f"the run trained commit {sha[:9]}, not the head {grounds.head_sha[:9]}" for sha in others
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _alone(grounds: Grounds, records: Records, part: Part) -> Judged:
    """Judge against the stored runs."""
    current = [_named(record, grounds.base) for record in records.runs(part, "current")]
    name = _name(grounds, current)
    if not current:
        reason = f"the run left no record of {grounds.config}; read the training job's log"
        return error(name, reason)
    problem = fewer_steps(current, grounds.base)
    if problem:
        return error(name, problem)
    chosen, notes = _selection(grounds, current[-1])
    notes += tuple(_repeated(run) for run in records.runs(part, "failed"))
    problem = (
        _other_machine(grounds, current[-1], chosen)
        or _too_old(grounds, chosen)
        or _without_exact(current, chosen.records)
    )
    if problem:
        return error(name, problem)
    thresholds, tier = thresholds_of(grounds)
    found = compare_to_baseline(
        current,
        chosen.records,
        thresholds,
        noise=_noise(chosen, current[-1]),
        history=True,
        anchor=chosen.anchor,
        metrics=metric_gates_of(grounds),
        accept=grounds.accept,
        source=grounds.source,
    )
    found = replace(found, tier=tier, notes=(*found.notes, *notes))
    newest = _commit_of(chosen.records[-1]) if chosen.records else ""
    trends = trends_of((*chosen.records, current[-1]))
    hint = hint_of(found, current, chosen.records, _known(grounds, chosen))
    pictures = _pictures(grounds, current[-1])
    answer = Answer(name, found, trends=trends, pictures=pictures, hint=hint)
    return Judged(answer, tuple(current), newest, chosen.records)


def _known(grounds: Grounds, chosen: Selection) -> Known:
    """Return the config and the number of commits since the newest stored run: its distance from
    the merge base, and the head's own commits."""
    commits = None
    if chosen.records and grounds.ancestry is not None and grounds.ahead is not None:
        behind = grounds.ancestry.distance(_commit_of(chosen.records[-1]))
        commits = None if behind is None else behind + grounds.ahead
    return Known(grounds.path, commits, grounds.head_sha)


def _pictures(grounds: Grounds, record: RunRecord) -> tuple[str, str] | None:
    """Return the addresses of the drawer's pictures, if they are wanted and there."""
    if not grounds.pictures or grounds.history is None:
        return None
    folder = drawer(grounds.history, _keyed(record, grounds.base))
    if not all((folder / name).is_file() for name in PICTURES):
        return None
    place = folder.relative_to(grounds.history).as_posix()
    light, dark = (quote(f"{grounds.pictures}/{place}/{name}", safe="/:") for name in PICTURES)
    return light, dark


def _pairs(grounds: Grounds, records: Records, part: Part) -> Judged:
    """Judge alternating runs of base and head, in pairs."""
    base = [_named(record, grounds.base) for record in records.runs(part, "base")]
    head = [_named(record, grounds.base) for record in records.runs(part, "head")]
    name = _name(grounds, head)
    problem = fewer_steps(base, grounds.base) or fewer_steps(head, grounds.base)
    problem = problem or _without_exact(head, base)
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
        budget=Plan().error_budget(min(len(head), max(LOOKS))),
        metrics=metric_gates_of(grounds),
        accept=grounds.accept,
        source=grounds.source,
    )
    notes = [f"{len(head)} pairs, base and head alternating, each run in a separate process"]
    notes += [_repeated(run) for run in every if run.status != "completed"]
    found = replace(found, tier=tier, notes=(*found.notes, *notes))
    return Judged(Answer(name, found), tuple(head), _commit_of(base[-1]), tuple(base))


def _commit_of(run: RunRecord) -> str:
    """Return the run's commit, only if it is a valid SHA: it becomes an output of the step."""
    sha = str(run.git.get("sha") or "")
    return sha if SHA.fullmatch(sha) else ""


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
    return f"a run ended as {run.status} ({_one_line(run.reason or 'no reason given')})"


def _name(grounds: Grounds, records: Sequence[RunRecord]) -> str:
    if grounds.base:
        return grounds.base.config.name
    return records[-1].name if records and records[-1].name else Path(grounds.config).stem


def _named(record: RunRecord, base: LoadedConfig | None) -> RunRecord:
    """Return the record under the base branch's name, cut to a valid length. With a new name of the
    pull request's it would find no baseline."""
    name = record.name[:LONGEST_NAME] if base is None else base.config.name
    return record.model_copy(update={"name": name})


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
            unprobed = key == "probe_steps" and took == 0 and record is not records[0]
            if not isinstance(took, int):
                return (
                    f"run {record.run_id} has {key} {took!r}, which is not a number of steps; "
                    "train again"
                )
            if took < asked and not unprobed:
                return (
                    f"run {record.run_id} has {key} {took}, the base branch's config requires "
                    f"{asked}; change it there first"
                )
        for key in AT_MOST:
            asked, took = getattr(base.config, key), record.config.get(key)
            asked = METRICS_WARMUP if asked is None else asked
            if not isinstance(took, int) or took > asked:
                return (
                    f"run {record.run_id} has {key} {took!r}, the base branch's config allows "
                    f"{asked}; change it there first"
                )
        bare = record.status == "completed" and not record.exact
        if base.config.probe_steps and record is records[0] and bare:
            reason = record.unmeasured.get("exact", "it has no probe")
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


def thresholds_of(grounds: Grounds) -> tuple[Thresholds, str]:
    """Return thresholds and their tier's name: the workflow's, or those of the base's config."""
    if grounds.tier:
        return tier_thresholds(grounds.tier), grounds.tier
    if grounds.base is None:
        return DEFAULT_THRESHOLDS, "default"
    section = grounds.base.config.thresholds
    changed = section.model_dump(exclude_none=True, exclude={"base_tier"})
    how = ", adjusted in the base branch's config" if changed else ""
    return from_config(section), section.base_tier + how


def metric_gates_of(grounds: Grounds) -> tuple[MetricGate, ...]:
    """Return the gates on metrics of the base branch's config, never the pull request's."""
    return grounds.base.config.metrics if grounds.base is not None else ()


def _without_exact(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> str:
    """Return an error for an imported run whose baseline the canary recorded: it would be judged
    without the exact lane."""
    if baseline and not is_imported(baseline[-1]):
        for record in filter(is_imported, current):
            return (
                f"run {record.run_id} was imported, but the canary recorded its baseline; record "
                "the default branch in the same way first"
            )
    return ""


def _selection(grounds: Grounds, record: RunRecord) -> tuple[Selection, tuple[str, ...]]:
    if grounds.history is None or not is_history(grounds.history):
        note = () if grounds.recording else (f"there is no branch {grounds.branch} yet",)
        return Selection((), (), None, 0), note
    asked = _keyed(record, grounds.base)
    if not grounds.recording:
        # Only storing a run again may exclude its stored copy; a record's id must not.
        asked = asked.model_copy(update={"run_id": ""})
    chosen = select(grounds.history, asked, ancestry=grounds.ancestry)
    notes: list[str] = []
    if chosen.elsewhere:
        notes.append(
            f"{chosen.elsewhere} stored runs not used: this commit does not descend from theirs"
        )
    return chosen, tuple(notes)


def _keyed(record: RunRecord, base: LoadedConfig | None) -> RunRecord:
    """Return the record with the base branch's dtype: a changed dtype must still find its
    baseline."""
    if base is None:
        return record
    config = record.config | {"dtype": base.config.dtype}
    return record.model_copy(update={"config": config})


def _other_machine(grounds: Grounds, record: RunRecord, chosen: Selection) -> str:
    """Return an error if only other machines have a baseline: it must not pass as a first run."""
    if chosen.records or chosen.elsewhere or grounds.recording or grounds.history is None:
        return ""
    if not is_history(grounds.history):
        return ""
    name = slug(record.name or "canary")
    known = [machine for canary, machine, *_ in rows(grounds.history) if canary == name]
    if not known:
        return ""
    device = ""
    if grounds.base is not None and grounds.base.config.device != record.config.get("device"):
        device = f"device {grounds.base.config.device} -> {record.config.get('device')}: "
    return (
        f"{device}the baseline ran on {', '.join(known[:3])}, this run on {machine_key(record)}; "
        "run the default branch on this machine first"
    )


def _too_old(grounds: Grounds, chosen: Selection) -> str:
    """Return an error if the branch began before the baseline: it must not pass for that."""
    count = len(chosen.records)
    if grounds.recording or not count < MIN_HISTORY <= count + chosen.elsewhere:
        return ""
    return (
        f"the branch is too old to judge: it descends from {count} of {count + chosen.elsewhere} "
        f"stored runs, {MIN_HISTORY} are needed; merge the base branch into it"
    )


def _noise(chosen: Selection, record: RunRecord) -> NoiseModel | None:
    if chosen.noise_file is None:
        return None
    noise = load_noise(chosen.noise_file)
    require_same_machine(noise, record)
    return noise
