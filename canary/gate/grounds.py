"""What a canary is judged with, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.baseline.ancestry import Ancestry
from canary.baseline.origin import SHA
from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.report import Comparison
from canary.compare.thresholds import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    from_config,
)
from canary.config.load import LoadedConfig
from canary.config.metric_gates import MetricGate
from canary.gate.manifest import Mode
from canary.github.status import Answer
from canary.record.types import RunRecord

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


def metric_gates_of(grounds: Grounds) -> tuple[MetricGate, ...]:
    """Return the gates on metrics of the base branch's config, never the pull request's."""
    return grounds.base.config.metrics if grounds.base is not None else ()
