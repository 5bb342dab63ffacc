"""The stored runs that a canary is judged against, and why they cannot judge it."""

from __future__ import annotations

from collections.abc import Sequence

from canary.baseline.comparability import is_imported, machine_key, slug
from canary.baseline.history import (
    ONLY_EARLIER,
    Selection,
    drawer,
    drawers,
    entries,
    is_history,
    only_earlier,
    select,
)
from canary.compare.paths import require_same_machine
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.compare.verdict import MIN_HISTORY
from canary.gate.grounds import Grounds, commit_of, keyed
from canary.record.types import RunRecord
from canary.report.bisect_hint import Known


def selection(grounds: Grounds, record: RunRecord) -> tuple[Selection, tuple[str, ...]]:
    """Return the stored runs for a record, and notes about those that are left out."""
    if grounds.history is None or not is_history(grounds.history):
        note = () if grounds.recording else (f"there is no branch {grounds.branch} yet",)
        return Selection((), (), None, 0), note
    if only_earlier(grounds.history):
        return Selection((), (), None, 0), (f"branch {grounds.branch} {ONLY_EARLIER}",)
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
