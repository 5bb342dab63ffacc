"""The check run: the whole report on the commit's checks page, with annotations at the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from github.CheckRun import CheckRun
from github.Repository import Repository

from canary.github.claim import RANKS, Standing, looked, signed, standing, why_it_stays
from canary.github.client import Hub
from canary.github.section import CUT_HERE
from canary.github.source import Answer, Source
from canary.github.status import StatusText, shortened

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


@dataclass(frozen=True)
class _Writing:
    """One check run of ours on the way to its commit."""

    hub: Hub
    repository: Repository
    source: Source
    text: StatusText
    name: str

    @property
    def what(self) -> str:
        """As an error names it."""
        return f"the check run of {self.source.sha[:9]}"

    def ours(self) -> list[tuple[CheckRun, Standing]]:
        """Those that are there, and what they say; none where `looked` goes without."""
        return looked(self.hub, self.repository, self.source, self.text, self.what, self._all) or []

    def _all(self) -> list[tuple[CheckRun, Standing]]:
        found = check_runs(self.repository, self.source.sha, self.name)
        return [(run, standing(run.external_id, run.conclusion)) for run in found]

    def own(self) -> CheckRun | None:
        """The one of this run and attempt."""
        return next((run for run, said in self.ours() if said.age == self.source.age), None)

    def why_it_stays(self) -> tuple[str, Standing]:
        """Why one that is there is left alone, and what it says; empty where this may be shown."""
        # GitHub shows the one that was completed last, even where an older run completes its own.
        said = sorted(
            (one for _, one in self.ours()), key=lambda one: (one.age, RANKS.get(one.state, 0))
        )
        for newest in {one.origin: one for one in said}.values():
            stays = why_it_stays(
                self.hub, self.repository, self.source, self.text, self.what, newest
            )
            if stays:
                return stays, newest
        return "", Standing()


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
    writing = _Writing(hub, repository, source, text, name)
    what = writing.what
    mine = signed(f"{OURS}{source.run_id}.{source.attempt}", source, text)
    state: dict[str, Any] = {"status": "in_progress"}
    if text.state != "pending":
        state = {"status": "completed", "conclusion": CONCLUSIONS[text.state]}
    batches = [list(notes[at : at + ANNOTATIONS_A_REQUEST]) for at in _starts(notes)]
    output = _output(text, summary, batches[0])
    address: dict[str, Any] = {"details_url": source.url} if source.url else {}
    stays, _ = writing.why_it_stays()
    if stays:
        return "", stays
    run = writing.own()
    if run is None:
        run = hub.write(
            what,
            writing.own,
            lambda: repository.create_check_run(
                name, source.sha, external_id=mine, output=output, **address, **state
            ),
        )
    else:
        _edit(hub, what, run, external_id=mine, output=output, **state)
    for batch in batches[1:]:
        _edit(hub, what, run, output=_output(text, summary, batch))
    stays, theirs = writing.why_it_stays()
    if stays:
        _give_way(writing, run, theirs, stays, summary)
        return "", stays
    made = run
    return hub.read(what, lambda: made.html_url), ""


def _give_way(writing: _Writing, run: CheckRun, theirs: Standing, stays: str, summary: str) -> None:
    """Lets ours, which GitHub shows in the place of theirs, say what theirs says.

    A check run cannot be taken back. One that has no conclusion yet blocks until it has one.
    """
    said = StatusText("pending", shortened(stays))
    ends = theirs.state or "cancelled"
    output = _output(said, summary, [])
    _edit(writing.hub, writing.what, run, output=output, status="completed", conclusion=ends)


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
