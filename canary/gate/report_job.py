"""The reporting job (trusted): from the event to comment, status and baseline.

It has the token and runs no code of the pull request. `canary.gate.records` checks everything from
the training job. What decides the answer comes from the event, the base branch or GitHub.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from canary.baseline import branch
from canary.baseline.comparability import own_slug, slug
from canary.baseline.history import Accepted, Context, save
from canary.errors import (
    EXIT_ERROR,
    EXIT_OK,
    CanaryError,
    ConfigError,
    MachineError,
    UsageError,
    counted,
    not_written,
)
from canary.gate.acceptance import NOT_ASKED, Acceptance, acceptance
from canary.gate.base_config import load_base_config, repository_path
from canary.gate.failsafe import answered, errors_of
from canary.gate.gathering import (
    Target,
    World,
    ahead_of,
    api_reader,
    baseline_of,
    changed_files,
    find_pull,
    records_of,
)
from canary.gate.inputs import ReportSettings, with_nightly
from canary.gate.judging import Grounds, commit_of, error, judge
from canary.gate.page import leave_page, link_of
from canary.github.event import Intent, Kind, intent_of
from canary.github.publish import Published
from canary.github.status import Answer, worst
from canary.record import jsonio
from canary.record.types import RunRecord
from canary.report.render import written

JOBS = {Kind.JUDGE: "run report", Kind.RECORD: "run record", Kind.PREFETCH: "prefetch"}
"""Jobs of the workflow that an event asks for."""
NO_BASE_BRANCH = (
    "the status pending was not set, because the token cannot read the base branch; "
    "give the job `pull-requests: read`"
)


def read_event(settings: ReportSettings, world: World) -> Intent:
    """Return what the event asks for.

    Raises:
        UsageError: the gate refuses this event, or the payload is invalid.
        MachineError: the payload names no repository, and GitHub cannot be asked.
    """
    try:
        payload = jsonio.loads(settings.event_path.read_bytes())
    except (OSError, ValueError) as problem:
        raise UsageError(f"the event at {settings.event_path} cannot be read: {problem}") from None
    if not isinstance(payload, dict):
        raise UsageError(f"the event at {settings.event_path} is not a JSON object")
    if settings.event in ("schedule", "workflow_dispatch") and "repository" not in payload:
        name = settings.repository
        found = world.hub.read(name, lambda: world.hub.github.get_repo(name))
        payload["repository"] = {"full_name": name, "default_branch": found.default_branch}
    return intent_of(
        settings.event, payload, sha=settings.sha, ref=settings.ref, label=settings.label
    )


def plan(settings: ReportSettings, world: World) -> int:
    """Set the output `jobs` to what the event asks for, and the pending status on its commit.

    Raises:
        UsageError: the gate refuses this event, or an input is invalid; the commit's status then
            says so too.
    """
    target = Target(settings, world, read_event(settings, world), comments=False)
    return answered(target, lambda: _planned(target))


def _planned(target: Target) -> int:
    _check(target.settings)
    intent, job = target.intent, target.world.job
    jobs, reason = JOBS.get(intent.kind, ""), intent.reason
    if intent.run_id is not None:
        jobs = jobs.removeprefix("run ")  # Another run trained. This one may write.
    if intent.kind is Kind.JUDGE and _outdated(target):
        jobs, reason = "", f"{reason}: nothing is trained, because it has newer commits"
    elif intent.kind not in (Kind.PREFETCH, Kind.IGNORE):
        _announce(target)
    if jobs:
        job.line(reason)
    else:
        job.say("notice", reason)
    job.set_outputs({"jobs": jobs})
    return EXIT_OK


def _outdated(target: Target) -> bool:
    """Return whether the pull request has newer commits: a training of this one would cancel
    theirs. If GitHub does not say, it has none."""
    if target.intent.pull_request is None:
        return False
    with contextlib.suppress(MachineError):
        find_pull(target)
    return target.pull is not None and target.pull.head.sha != target.intent.head_sha


def answer(settings: ReportSettings, world: World) -> int:
    """Judge the records, publish the answer and return the exit code of the verdict.

    Raises:
        UsageError: the gate refuses this event, or an input is invalid; the commit's status then
            says so too.
        MachineError: this job failed; the commit's status then says so too.
    """
    target = Target(settings, world, read_event(settings, world))
    with target.kept:
        code = answered(target, lambda: concluded(target))
        leave_page(settings, target.judged, world.job)
    return code


def concluded(target: Target) -> int:
    """Do the work of `answer` for a known event; the caller handles errors."""
    settings, world, intent = target.settings, target.world, target.intent
    _check(settings)
    world.job.line(intent.reason)
    if intent.kind is Kind.ANNOUNCE:
        _announce(target)
    if intent.kind not in (Kind.JUDGE, Kind.RECORD):
        return EXIT_OK
    accepted, note = NOT_ASKED
    try:
        find_pull(target)
        _find_base(target)
        accepted, note = acceptance(target)
        scratch = TemporaryDirectory(prefix="canary-gate-", ignore_cleanup_errors=True)
        judged = _judged(target, accepted, Path(target.kept.enter_context(scratch)))
    except CanaryError as problem:
        judged = errors_of(target.settings, str(problem).rstrip("."))
    judged = [*_settled(judged, accepted, note)]
    said = _say(target, judged)
    stored = True
    if intent.writes_baseline:
        stored = remember(target, judged, accepted)
    code = _finish(target, judged, said)
    target.judged = judged
    return code if stored or code else EXIT_ERROR


def _check(settings: ReportSettings) -> None:
    """Raise a UsageError for an invalid input."""
    if settings.refused is not None:
        raise settings.refused
    for path in settings.configs:
        repository_path(settings.folder, path)


def _announce(target: Target) -> None:
    world = target.world
    try:
        if target.pull is None:
            find_pull(target)
    except MachineError:
        # The job may lack the permission to read it; often the event names the base branch.
        if not target.intent.base_branch:
            world.job.say("notice", NO_BASE_BRANCH)
            return
    target.channels.announce(target.source)


def _find_base(target: Target) -> None:
    """Find the commit whose config and thresholds apply: the base of the pull request, and on the
    default branch the commit itself. Without a pull request it is the default branch's tip. The
    nightly run has the longer canary too, if that commit has its config."""
    intent, hub = target.intent, target.world.hub
    name = intent.default_branch
    if intent.writes_baseline:
        target.base_sha = intent.head_sha
    elif intent.base_sha:
        target.base_sha = intent.base_sha
    elif target.pull is not None:
        target.base_sha = target.pull.base.sha
    else:
        tip = hub.read(name, lambda: hub.repository.get_commit(name))
        target.base_sha = tip.sha
    if intent.nightly:
        settings, read = target.settings, api_reader(target)
        path = partial(repository_path, settings.folder)
        every = with_nightly(settings.configs, lambda config: read(path(config)) is not None)
        target.settings = settings.model_copy(update={"configs": every})


def _judged(target: Target, accepted: Acceptance | None, scratch: Path) -> list[Answer]:
    """Judge every canary separately; `scratch` keeps the files that are fetched."""
    settings, intent = target.settings, target.intent
    read = api_reader(target)
    records = records_of(target, scratch)
    history, ancestry = baseline_of(target, scratch)
    source, ahead = changed_files(target), ahead_of(target)
    judged: list[Answer] = []
    for config in settings.configs:
        path = repository_path(settings.folder, config)
        try:
            grounds = Grounds(
                config=config,
                base=load_base_config(read, path),
                history=history,
                ancestry=ancestry,
                accept=accepted.reason if accepted else None,
                label=settings.label,
                compare="baseline" if intent.writes_baseline else settings.compare,
                head_sha=intent.head_sha,
                branch=settings.baseline_branch,
                source=source,
                path=path,
                ahead=ahead,
                recording=intent.writes_baseline,
            )
            one = judge(grounds, records)
        except CanaryError as problem:
            prefix = "the base branch's config: " if isinstance(problem, ConfigError) else ""
            one = error(Path(config).stem, f"{prefix}{problem}")
        judged.append(replace(one, config=path, job=settings.job))
    return judged


def _settled(judged: Sequence[Answer], accepted: Acceptance | None, note: str) -> Iterator[Answer]:
    """Yield the answers with what their acceptance changes; canaries that share a name get the
    config's path. A person who accepts by hand begins a new period and knows what is worse."""
    slugs = [slug(one.canary) for one in judged]
    for one, name in zip(judged, slugs, strict=True):
        found, canary = one.comparison, one.canary
        if note:
            found = replace(found, notes=(note, *found.notes))
        if accepted and accepted.words and found.verdict in ("regression", "changed"):
            line = found.first_line
            line = line if found.accepted else f"Accepted ({accepted.reason}): {line}"
            found = replace(found, verdict="changed", accepted=accepted.reason, first_line=line)
        if slugs.count(name) > 1:
            canary = f"{canary} {one.config}"
        yield replace(one, canary=canary, comparison=found, note=note)


def _say(target: Target, judged: Sequence[Answer]) -> Published:
    """Write the reports and publish the answer.

    Raises:
        MachineError: the reports cannot be written.
    """
    for one in judged:
        try:
            written(one.comparison, target.settings.report / own_slug(one.canary))
        except MachineError as problem:
            if not isinstance(problem.__cause__, OSError):
                raise
            raise not_written("the report", problem.__cause__) from problem
    source = replace(target.source, report=link_of(target.settings))
    return target.channels.publish(target.number, source, judged)


def _finish(target: Target, judged: Sequence[Answer], said: Published) -> int:
    """Log the first lines, set the outputs and return the exit code of the worst verdict."""
    settings, job = target.settings, target.world.job
    strict = settings.strict
    decides = worst(judged, strict)
    for one in judged:
        job.line(f"{one.canary}: {one.comparison.first_line}")
    stored = (commit_of(one.baseline[-1]) for one in judged if one.baseline)
    job.set_outputs(
        {
            "verdict": decides.comparison.verdict,
            "report-path": str(settings.report),
            "record-path": str(settings.records),
            "comment-url": said.comment_url,
            "baseline-sha": next(stored, ""),
        }
    )
    for one in judged:
        if one.comparison.exit_code(strict) != 0:
            job.say("error", f"{one.canary}: {one.comparison.first_line}", one.place)
    if said.unanswered:
        job.say("error", f"the answer is missing on the commit: {said.unanswered}")
        return EXIT_ERROR
    return decides.comparison.exit_code(strict)


def remember(target: Target, judged: Sequence[Answer], acceptance: Acceptance | None) -> bool:
    """Add the completed runs to the baseline, each with its verdict; False if that failed."""
    world, job = target.world, target.world.job
    completed: list[tuple[RunRecord, Context]] = []
    for one in judged:
        context = _context(target, one, acceptance)
        for record in one.records:
            if record.status == "completed":
                completed.append((record, context))
                if context.accepted:  # The first began the new period.
                    context = context.model_copy(update={"accepted": None, "verdict": "pass"})
    if not completed:
        job.say("notice", "no completed run to add to the baseline")
        return True

    def add(folder: Path) -> None:
        for record, context in completed:
            reason = context.accepted.reason if context.accepted else None
            save(folder, record, accepted=reason, context=context)

    sha = target.intent.head_sha[:9]
    message = f"{counted(len(completed), 'run')} of {sha}"
    try:
        pushed = branch.push(world.remote, add, message=message)
    except CanaryError as problem:
        job.say("error", f"the baseline was not written: {problem}")
        return False
    job.line(f"{message} added to {target.settings.baseline_branch}, now at {pushed.sha[:9]}")
    return True


def _context(target: Target, judged: Answer, acceptance: Acceptance | None) -> Context:
    """Return what is stored beside the record. A label accepts only a change; a reason given by
    hand begins a new period with any verdict."""
    accepted, found = None, judged.comparison
    if acceptance is not None and (found.accepted or acceptance.words):
        accepted = Accepted.model_validate(acceptance, from_attributes=True)
    return Context(
        commit=target.intent.head_sha,
        ref=target.settings.ref,
        verdict=found.verdict,
        run_url=target.settings.run_url,
        pull_request=(acceptance.pull_request or None) if acceptance else None,
        accepted=accepted,
        stored=target.world.now().astimezone(UTC).isoformat(timespec="seconds"),
    )
