"""The check run: the whole report on the commit's checks page, with annotations at the config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from github.CheckRun import CheckRun
from github.Repository import Repository

from canary.publish.claim import signed, standing, why_it_stays
from canary.publish.hub import Hub
from canary.publish.section import CUT_HERE
from canary.publish.source import Answer, Source
from canary.publish.status import StatusText, shortened

LONGEST_TEXT = 65_000
"""Characters of summary and of text; GitHub refuses more than 65,535 of each."""
ANNOTATIONS_A_REQUEST = 50
MOST_ANNOTATIONS = 150
LONGEST_MESSAGE = 4_000
OURS = "rlhf-canary/"
"""How the external id of a check run of ours begins; run, attempt and signature follow."""
CONCLUSIONS = {"success": "success", "failure": "failure", "error": "failure"}


def annotated(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """A line a failed or warned check, at the canary's config file; texts as they are, since
    annotations show no markup. Canaries without a known path have none."""
    found = []
    for answer in answers:
        for check in answer.comparison.checks if answer.config else ():
            if check.failed or check.status == "warn":
                found.append(
                    {
                        "path": answer.config,
                        "start_line": 1,
                        "end_line": 1,
                        "annotation_level": "failure" if check.failed else "warning",
                        "title": shortened(f"{answer.canary}: {check.name}", 200),
                        "message": shortened(check.message or check.name, LONGEST_MESSAGE),
                    }
                )
    return found[:MOST_ANNOTATIONS]


def write_check_run(
    hub: Hub,
    repository: Repository,
    source: Source,
    text: StatusText,
    summary: str,
    notes: Sequence[dict[str, Any]] = (),
    name: str = "rlhf-canary",
) -> tuple[str, str]:
    """Creates or completes the check run of this workflow run.

    Returns its address and why it was left alone; one of them is empty.

    Raises:
        Refused: the token may not write checks.
        MachineError: GitHub does not take it.
    """
    what = f"the check run of {source.sha[:9]}"
    mine = signed(f"{OURS}{source.run_id}.{source.attempt}", source, text)

    def ours() -> list[CheckRun]:
        return check_runs(repository, source.sha, name)

    def own() -> CheckRun | None:
        return next((run for run in ours() if standing(run.external_id).age == source.age), None)

    state: dict[str, Any] = {"status": "in_progress"}
    if text.state != "pending":
        state = {"status": "completed", "conclusion": CONCLUSIONS[text.state]}
    batches = [list(notes[at : at + ANNOTATIONS_A_REQUEST]) for at in _starts(notes)]
    output = _output(text, summary, batches[0])
    address: dict[str, Any] = {"details_url": source.url} if source.url else {}
    there = hub.read(what, ours)
    # GitHub shows the one that was completed last, even where an older run completes its own.
    by_age = sorted((standing(run.external_id) for run in there), key=lambda one: one.age)
    for newest in {one.origin: one for one in by_age}.values():
        stays = why_it_stays(hub, repository, source, what, newest)
        if stays:
            return "", stays
    run = next((run for run in there if standing(run.external_id).age == source.age), None)
    if run is None:
        run = hub.write(
            what,
            own,
            lambda: repository.create_check_run(
                name, source.sha, external_id=mine, output=output, **address, **state
            ),
        )
    else:
        _edit(hub, what, run, external_id=mine, output=output, **state)
    for batch in batches[1:]:
        _edit(hub, what, run, output=_output(text, summary, batch))
    return run.html_url, ""


def _edit(hub: Hub, what: str, run: CheckRun, **values: Any) -> None:
    def edited() -> CheckRun:
        run.edit(**values)
        return run

    hub.write(what, lambda: None, edited)


def check_runs(repository: Repository, sha: str, name: str) -> list[CheckRun]:
    """Our check runs of this name on a commit: all of them, not only the one that GitHub shows."""
    found = repository.get_commit(sha).get_check_runs(check_name=name, filter="all")
    return [run for run in found if (run.external_id or "").startswith(OURS)]


def _starts(notes: Sequence[dict[str, Any]]) -> range:
    return range(0, max(1, len(notes)), ANNOTATIONS_A_REQUEST)


def _output(text: StatusText, summary: str, batch: list[dict[str, Any]]) -> dict[str, Any]:
    if len(summary) > LONGEST_TEXT:
        summary = summary[: LONGEST_TEXT - len(CUT_HERE)].rsplit("\n", 1)[0] + CUT_HERE
    output: dict[str, Any] = {"title": text.description, "summary": summary}
    if batch:
        output["annotations"] = batch
    return output
