"""What a canary is judged with: the base branch's config, and the stored runs or why they cannot
judge it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.baseline.ancestry import Ancestry
from canary.baseline.comparability import is_imported, machine_key, slug
from canary.baseline.history import Selection, drawer, drawers, entries, is_history, select
from canary.baseline.origin import SHA
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.paths import require_same_machine
from canary.compare.report import Comparison
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds, from_config
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.compare.verdict import MIN_HISTORY
from canary.config.load import LoadedConfig
from canary.gate.records import Mode
from canary.github.status import Answer
from canary.record.types import RunRecord
from canary.report.bisect_hint import Known

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


def error(name: str, message: str) -> Answer:
    """Return an `error` with its reason."""
    return Answer(name, Comparison("error", f"Error: {message}."))


def one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def name_of(grounds: Grounds, records: Sequence[RunRecord]) -> str:
    if grounds.base:
        return grounds.base.config.name
    return records[-1].name if records and records[-1].name else Path(grounds.config).stem


def named(record: RunRecord, base: LoadedConfig | None) -> RunRecord:
    """Return the record under the base branch's name, cut to a valid length. With a new name of the
    pull request's it would find no baseline."""
    name = record.name[:LONGEST_NAME] if base is None else base.config.name
    return record.model_copy(update={"name": name})


def keyed(record: RunRecord, base: LoadedConfig | None) -> RunRecord:
    """Return the record with the base branch's dtype: a changed dtype must still find its
    baseline."""
    if base is None:
        return record
    config = record.config | {"dtype": base.config.dtype}
    return record.model_copy(update={"config": config})


def commit_of(run: RunRecord) -> str:
    """Return the run's commit, only if it is a valid SHA: it becomes an output of the step."""
    sha = str(run.git.get("sha") or "")
    return sha if SHA.fullmatch(sha) else ""


def thresholds_of(grounds: Grounds) -> tuple[Thresholds, str]:
    """Return the thresholds of the base branch's config, and their tier's name."""
    if grounds.base is None:
        return DEFAULT_THRESHOLDS, "default"
    section = grounds.base.config.thresholds
    changed = section.model_dump(exclude_none=True, exclude={"base_tier"})
    how = ", adjusted in the base branch's config" if changed else ""
    return from_config(section), section.base_tier + how


def selection(grounds: Grounds, record: RunRecord) -> tuple[Selection, tuple[str, ...]]:
    """Return the stored runs for a record, and notes about those that are left out."""
    if grounds.history is None or not is_history(grounds.history):
        note = () if grounds.recording else (f"branch {grounds.branch} holds no runs yet",)
        return Selection((), (), None, 0), note
    asked = keyed(record, grounds.base)
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


def not_first(grounds: Grounds, record: RunRecord, chosen: Selection) -> str:
    """Return an error if only other machines have a baseline, or if all stored runs of this one are
    red: the run must not pass as a first one."""
    if chosen.records or chosen.elsewhere or grounds.recording or grounds.history is None:
        return ""
    if not is_history(grounds.history):
        return ""
    name = slug(record.name or "canary")
    found = (one for one in drawers(grounds.history) if one.parent.name == name)
    known = [one.name for one in found if entries(one)]
    if not known:
        return ""
    if red := entries(drawer(grounds.history, keyed(record, grounds.base))):
        return (
            f"all {len(red)} stored runs of this machine are red; mend the default branch and run "
            "it again, or accept one of its runs"
        )
    device = ""
    if grounds.base is not None and grounds.base.config.device != record.config.get("device"):
        device = f"device {grounds.base.config.device} -> {record.config.get('device')}: "
    return (
        f"{device}the baseline ran on {', '.join(known[:3])}, this run on {machine_key(record)}; "
        "run the default branch on this machine first"
    )


def too_old(grounds: Grounds, chosen: Selection) -> str:
    """Return an error if the branch began before the baseline: it must not pass for that."""
    count = len(chosen.records)
    if grounds.recording or not count < MIN_HISTORY <= count + chosen.elsewhere:
        return ""
    return (
        f"the branch is too old to judge: it descends from {count} of {count + chosen.elsewhere} "
        f"stored runs, {MIN_HISTORY} are needed; merge the base branch into it"
    )


def without_exact(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> str:
    """Return an error for an imported run whose baseline the canary recorded: it would be judged
    without the exact lane."""
    if baseline and not is_imported(baseline[-1]):
        for record in filter(is_imported, current):
            return (
                f"run {record.run_id} was imported, but the canary recorded its baseline; record "
                "the default branch in the same way first"
            )
    return ""


def noise_of(chosen: Selection, record: RunRecord) -> NoiseModel | None:
    """Return the measured noise of the stored runs, if there is any."""
    if chosen.noise_file is None:
        return None
    noise = load_noise(chosen.noise_file)
    require_same_machine(noise, record)
    return noise


def known_of(grounds: Grounds, chosen: Selection) -> Known:
    """Return the config and the number of commits since the newest stored run: its distance from
    the merge base, and the head's own commits."""
    commits = None
    if chosen.records and grounds.ancestry is not None and grounds.ahead is not None:
        behind = grounds.ancestry.distance(commit_of(chosen.records[-1]))
        commits = None if behind is None else behind + grounds.ahead
    return Known(grounds.path, commits, grounds.head_sha)
