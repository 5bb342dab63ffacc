"""Store the default branch's runs on the baseline branch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from canary.baseline import branch
from canary.baseline.history import Accepted, Context, save
from canary.errors import CanaryError
from canary.gate.context import World
from canary.gate.inputs import ReportSettings
from canary.github.acceptance import Acceptance
from canary.github.event import Intent
from canary.github.status import Answer


def remember(
    settings: ReportSettings,
    world: World,
    intent: Intent,
    judged: Sequence[Answer],
    acceptance: Acceptance | None,
) -> bool:
    """Add the completed runs to the baseline, each with its verdict; False if that failed."""
    entries = [
        (record, one, acceptance if record is completed[0] else None)
        for one in judged
        if (completed := [record for record in one.records if record.status == "completed"])
        for record in completed
    ]
    if not entries:
        world.job.say("notice", "no completed run to add to the baseline")
        return True

    def add(folder: Path) -> None:
        for record, one, accepted in entries:  # The first begins the new period.
            context = _context(settings, world, intent, one, accepted)
            reason = context.accepted.reason if context.accepted else None
            save(folder, record, accepted=reason, context=context)

    message = f"{len(entries)} run{'s' if len(entries) > 1 else ''} of {intent.head_sha[:9]}"
    try:
        pushed = branch.push(world.remote, add, message=message)
    except CanaryError as problem:
        world.job.say("error", f"the baseline was not written: {problem}")
        return False
    world.job.line(f"{message} added to {settings.baseline_branch}, now at {pushed.sha[:9]}")
    return True


def _context(
    settings: ReportSettings,
    world: World,
    intent: Intent,
    judged: Answer,
    acceptance: Acceptance | None,
) -> Context:
    """Return what is stored beside the record. A label accepts only a change; a reason given by
    hand begins a new period with any verdict."""
    accepted, found = None, judged.comparison
    if acceptance is not None and (found.accepted or acceptance.by_hand):
        accepted = Accepted(
            by=acceptance.by,
            label=acceptance.label,
            head_sha=acceptance.head_sha,
            reason=acceptance.reason,
        )
    return Context(
        commit=intent.head_sha,
        ref=settings.ref,
        verdict=found.verdict,
        run_url=settings.run_url,
        pull_request=(acceptance.pull_request or None) if acceptance else None,
        accepted=accepted,
        stored=world.now().astimezone(UTC).isoformat(timespec="seconds"),
    )
