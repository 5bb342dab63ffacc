"""The reporting job (trusted): from the event to comment, status and baseline.

It has the token and runs no code of the pull request. `canary.gate.records` checks everything from
the training job. What decides the answer comes from the event, the base branch or GitHub.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from github.PullRequest import PullRequest

from canary.baseline.comparability import own_slug, slug
from canary.errors import (
    EXIT_ERROR,
    EXIT_OK,
    CanaryError,
    ConfigError,
    MachineError,
    UsageError,
    not_written,
)
from canary.gate.base_config import load_base_config, repository_path
from canary.gate.baseline_update import remember
from canary.gate.context import Case, World, allowed, pull_of
from canary.gate.failsafe import Target, answered, errors_of
from canary.gate.gathering import (
    acceptance,
    api_reader,
    baseline_of,
    changed_files,
    records_of,
    templates,
)
from canary.gate.grounds import Grounds, Judged, error
from canary.gate.inputs import ReportSettings, with_nightly
from canary.gate.judging import judge
from canary.gate.page import leave_page, link_of
from canary.github.acceptance import Acceptance, Asked
from canary.github.client import Refused
from canary.github.event import Intent, Kind, intent_of
from canary.github.publish import Channels, Published, announce, publish
from canary.github.status import blocks, worst
from canary.record import jsonio
from canary.report.render import written

JOBS = {Kind.JUDGE: "run report", Kind.RECORD: "run record", Kind.PREFETCH: "prefetch"}
"""Jobs of the workflow that an event asks for."""
ANNOUNCED = (Kind.JUDGE, Kind.RECORD, Kind.ANNOUNCE)
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
        payload["repository"] = _repository(settings, world)
    return intent_of(
        settings.event, payload, sha=settings.sha, ref=settings.ref, label=settings.label
    )


def _repository(settings: ReportSettings, world: World) -> dict[str, str]:
    """Return the payload's `repository`, which scheduled and dispatched runs may lack."""
    name = settings.repository
    found = allowed(lambda: world.hub.read(name, lambda: world.hub.github.get_repo(name)))
    return {"full_name": name, "default_branch": found.default_branch}


def plan(settings: ReportSettings, world: World) -> int:
    """Set the output `jobs` to what the event asks for, and the pending status on its commit.

    Raises:
        UsageError: the gate refuses this event, or an input is invalid; the commit's status then
            says so too.
    """
    target = Target(settings, world, read_event(settings, world), comments=False)
    return answered(target, lambda: _planned(target))


def _planned(target: Target) -> int:
    _checked(target.settings)
    intent, job = target.intent, target.world.job
    jobs, reason = JOBS.get(intent.kind, ""), intent.reason
    if intent.run_id is not None:
        jobs = jobs.removeprefix("run ")  # Another run trained. This one may write.
    if intent.kind is Kind.JUDGE and _outdated(target):
        jobs, reason = "", f"{reason}: nothing is trained, because it has newer commits"
    elif intent.kind in ANNOUNCED:
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
    number = target.intent.pull_request
    if number is None:
        return False
    with contextlib.suppress(Refused, MachineError):
        target.pull = _pull(target)
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
    wanted = _checked(settings)
    world.job.line(intent.reason)
    if intent.kind is Kind.ANNOUNCE:
        _announce(target)
    if intent.kind not in (Kind.JUDGE, Kind.RECORD):
        return EXIT_OK
    asked, judged = Asked(None), list[Judged]()
    try:
        target.pull = allowed(lambda: _pull(target))
        case = case_of(target)
        settings = case.settings
        wanted = replace(wanted, context=target.context)
        asked = allowed(lambda: acceptance(case, world))
        wanted = replace(wanted, templates=templates(case, world))
        scratch = TemporaryDirectory(prefix="canary-gate-", ignore_cleanup_errors=True)
        judged = _judged(case, world, asked.acceptance, Path(target.kept.enter_context(scratch)))
    except CanaryError as problem:
        judged = errors_of(settings, str(problem).rstrip("."))
    judged = [_with_note(one, asked.note) for one in _named_apart(judged)]
    if asked.acceptance is not None and asked.acceptance.by_hand:
        judged = [_by_hand(one, asked.acceptance) for one in judged]
    said = _say(target, judged, wanted)
    stored = True
    if intent.writes_baseline:
        stored = remember(settings, world, intent, judged, asked.acceptance)
    code = _finish(settings, world, judged, said)
    target.judged = judged
    return code if stored or code else EXIT_ERROR


def _checked(settings: ReportSettings) -> Channels:
    """Return where the answer goes.

    Raises:
        UsageError: an input is invalid.
    """
    if settings.refused is not None:
        raise settings.refused
    for path in settings.configs:
        repository_path(settings.folder, path)
    return channels(settings)


def channels(settings: ReportSettings) -> Channels:
    """Return where the answer goes."""
    return Channels(
        comment=settings.comment,
        status=settings.status,
        strict=settings.strict,
        context=settings.name,
        author=settings.author,
        jobs=settings.jobs,
    )


def _announce(target: Target) -> None:
    world = target.world
    try:
        target.pull = target.pull or _pull(target)
    except (Refused, MachineError):
        # The job may lack the permission to read it; often the event names the base branch.
        if not target.intent.base_branch:
            world.job.say("notice", NO_BASE_BRANCH)
            return
    wanted = replace(channels(target.settings), context=target.context)
    announce(world.hub, target.repository, target.source, wanted, world.job)


def _pull(target: Target) -> PullRequest | None:
    """Return the pull request, after checking the fields that an answer needs."""
    hub = target.world.hub
    pull = pull_of(hub, target.repository, target.intent)
    if pull is not None:
        found = pull
        number, *names = hub.read(
            "the pull request",
            lambda: (found.number, found.head.sha, found.base.sha, found.base.ref),
        )
        if not isinstance(number, int) or not all(isinstance(name, str) for name in names):
            raise MachineError(
                "GitHub's answer about the pull request is incomplete", "run the job again"
            )
    return pull


def case_of(target: Target) -> Case:
    """Return the case. Its base commit, whose config and thresholds apply, is the pull request's
    base. On the default branch it is the commit itself, on others the default branch's tip."""
    intent, pull, repository = target.intent, target.pull, target.repository
    base_sha = intent.base_sha or (pull.base.sha if pull is not None else "")
    if not base_sha and intent.kind is Kind.RECORD:
        base_sha = intent.head_sha
    if not base_sha:
        name = intent.default_branch
        tip = allowed(lambda: target.world.hub.read(name, lambda: repository.get_commit(name)))
        base_sha = tip.sha
    settings = target.settings
    if intent.nightly:
        read = api_reader(repository, target.world.hub, base_sha)

        def there(config: str) -> bool:
            return read(repository_path(settings.folder, config)) is not None

        settings = replace(settings, configs=with_nightly(settings.configs, there))
    return Case(settings, intent, repository, pull, target.source, base_sha)


def _judged(case: Case, world: World, accepted: Acceptance | None, scratch: Path) -> list[Judged]:
    """Judge every canary separately; `scratch` keeps the files that are fetched."""
    settings = case.settings
    read = api_reader(case.repository, world.hub, case.base_sha)
    records = records_of(case, world, scratch)
    history, ancestry = baseline_of(case, world, scratch)
    source, ahead = changed_files(case, world), _ahead(case, world)
    judged: list[Judged] = []
    for config in settings.configs:
        path = repository_path(settings.folder, config)
        try:
            base = load_base_config(read, path)
        except CanaryError as problem:
            prefix = "the base branch's config: " if isinstance(problem, ConfigError) else ""
            one = error(Path(config).stem, f"{prefix}{problem}")
        else:
            grounds = Grounds(
                config=config,
                base=base,
                history=history,
                ancestry=ancestry,
                accept=accepted.reason if accepted else None,
                compare=settings.compare if _in_pairs(case) else "baseline",
                head_sha=case.source.sha,
                branch=settings.baseline_branch,
                source=source,
                path=path,
                ahead=ahead,
                recording=case.intent.kind is Kind.RECORD,
            )
            one = judge(grounds, records)
        judged.append(replace(one, answer=replace(one.answer, config=path)))
    return judged


def _ahead(case: Case, world: World) -> int | None:
    """Return how many commits the head has and its merge base lacks; None if nobody counted."""
    pull = case.pull
    if pull is None:
        return 0 if case.intent.kind is Kind.RECORD else None
    with contextlib.suppress(Refused, MachineError):
        return world.hub.read(f"the commits of #{pull.number}", lambda: pull.commits)
    return None


def _named_apart(judged: Sequence[Judged]) -> list[Judged]:
    """If canaries share a name, add the config's path to it."""
    slugs = [slug(one.answer.canary) for one in judged]
    names = [
        one.answer.canary if slugs.count(name) == 1 else f"{one.answer.canary} {one.answer.config}"
        for one, name in zip(judged, slugs, strict=True)
    ]
    return [
        replace(one, answer=replace(one.answer, canary=name))
        for one, name in zip(judged, names, strict=True)
    ]


def _by_hand(judged: Judged, accepted: Acceptance) -> Judged:
    """Mark a failing answer as accepted: the person who began a new period knows what is worse."""
    found = judged.answer.comparison
    if found.verdict not in ("regression", "changed"):
        return judged
    line = f"Accepted ({accepted.reason}): {found.first_line}"
    known = replace(found, verdict="changed", accepted=accepted.reason, first_line=line)
    return replace(judged, answer=replace(judged.answer, comparison=known))


def _in_pairs(case: Case) -> bool:
    """Return whether base and head can run in pairs: for pull requests and merge queues."""
    return case.intent.kind is Kind.JUDGE and case.intent.event != "workflow_dispatch"


def _with_note(judged: Judged, note: str) -> Judged:
    if not note:
        return judged
    found = judged.answer.comparison
    said = replace(found, notes=(note, *found.notes))
    return replace(judged, answer=replace(judged.answer, comparison=said, note=note))


def _say(target: Target, judged: Sequence[Judged], wanted: Channels) -> Published:
    """Write the reports and publish the answer.

    Raises:
        MachineError: the reports cannot be written.
    """
    for one in judged:
        try:
            written(one.answer.comparison, target.settings.report / own_slug(one.answer.canary))
        except MachineError as problem:
            if not isinstance(problem.__cause__, OSError):
                raise
            raise not_written("the report", problem.__cause__) from problem
    world = target.world
    answers = [one.answer for one in judged]
    source = replace(target.source, report=link_of(target.settings))
    return publish(world.hub, target.repository, target.number, source, answers, wanted, world.job)


def _finish(
    settings: ReportSettings, world: World, judged: Sequence[Judged], said: Published
) -> int:
    """Log the first lines, set the outputs and return the exit code of the worst verdict."""
    answers = [one.answer for one in judged]
    decides = worst(answers, settings.strict)
    for one in answers:
        world.job.line(f"{one.canary}: {one.comparison.first_line}")
    world.job.set_outputs(
        {
            "verdict": decides.verdict,
            "report-path": str(settings.report),
            "record-path": str(settings.records),
            "comment-url": said.comment_url,
            "baseline-sha": next((one.baseline_sha for one in judged if one.baseline_sha), ""),
        }
    )
    for one in answers:
        if blocks(one.comparison, settings.strict):
            world.job.say("error", f"{one.canary}: {one.comparison.first_line}", one.place)
    if said.unanswered:
        world.job.say("error", f"the answer is missing on the commit: {said.unanswered}")
        return EXIT_ERROR
    return decides.comparison.exit_code(settings.strict)
