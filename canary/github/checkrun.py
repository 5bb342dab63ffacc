"""The check run: the report on the commit's checks page, with annotations at the lines that the
diagnosis names, and at the config file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from github.CheckRun import CheckRun
from github.Repository import Repository

from canary.github.claim import RANKS, Posted, lookup, posted_answer, signed, why_it_stays
from canary.github.client import Hub
from canary.github.section import CUT_HERE
from canary.github.status import Answer, Source, StatusText, shortened

LONGEST_TEXT = 65_000
"""Characters of the summary; GitHub refuses more than 65,535."""
ANNOTATIONS_A_REQUEST = 50
MOST_ANNOTATIONS = 150
LONGEST_MESSAGE = 4_000
OURS = "rlhf-canary/"
"""Prefix of our check runs' external ids; run, attempt and signature follow."""
CONCLUSIONS = {"success": "success", "failure": "failure", "error": "failure"}


def annotated(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return an annotation per changed line that the likeliest cause names. Then one per failed or
    warned check, at the canary's config file if its path is known. Texts are not escaped, because
    annotations show no markup."""
    found = [one for answer in answers for one in _named_lines(answer)]
    for answer in answers:
        for check in answer.comparison.checks if answer.config else ():
            if check.failed or check.status == "warn":
                title = f"{answer.canary}: {check.name}"
                message = check.message or check.name
                found.append(_annotation(answer.config, 1, check.failed, title, message))
    return found[:MOST_ANNOTATIONS]


def _named_lines(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield an annotation per line of evidence that comes from the commits' difference. A path from
    a record may be any text, and GitHub refuses a check run with a bad one."""
    comparison = answer.comparison
    cause = comparison.diagnosis.top_suspect
    if cause is None or not comparison.failed_checks:
        return
    for evidence in cause.evidence:
        if evidence.kind == "git" and evidence.path and evidence.line:
            title = f"{answer.canary}: likely cause: {cause.category}"
            message = f"{cause.description}\n{comparison.first_line}"
            yield _annotation(evidence.path, evidence.line, True, title, message)


def _annotation(path: str, line: int, failed: bool, title: str, message: str) -> dict[str, Any]:
    return {
        "path": path,
        "start_line": line,
        "end_line": line,
        "annotation_level": "failure" if failed else "warning",
        "title": shortened(title, 200),
        "message": shortened(message, LONGEST_MESSAGE),
    }


@dataclass(frozen=True)
class _Writing:
    """One write of our check run."""

    hub: Hub
    repository: Repository
    source: Source
    text: StatusText
    name: str

    @property
    def what(self) -> str:
        """Its name in errors."""
        return f"the check run of {self.source.sha[:9]}"

    def ours(self) -> list[tuple[CheckRun, Posted]]:
        """Return our check runs on the commit; an empty list if `lookup` returns None."""
        return lookup(self.hub, self.repository, self.source, self.text, self.what, self._all) or []

    def _all(self) -> list[tuple[CheckRun, Posted]]:
        found = check_runs(self.repository, self.source.sha, self.name)
        return [(run, posted_answer(run.external_id, run.conclusion)) for run in found]

    def of_this_attempt(self) -> CheckRun | None:
        """Return the check run of this run and attempt, if there is one."""
        return next((run for run, said in self.ours() if said.age == self.source.age), None)

    def why_it_stays(self) -> tuple[str, Posted]:
        """Return why an existing one must stay, and what it says; empty if this one may show."""
        # GitHub shows the one that completed last, even if it is of an older run.
        said = sorted(
            (one for _, one in self.ours()), key=lambda one: (one.age, RANKS.get(one.state, 0))
        )
        for newest in {one.origin: one for one in said}.values():
            stays = why_it_stays(
                self.hub, self.repository, self.source, self.text, self.what, newest
            )
            if stays:
                return stays, newest
        return "", Posted()


def write_check_run(
    hub: Hub,
    repository: Repository,
    source: Source,
    text: StatusText,
    summary: str,
    notes: Sequence[dict[str, Any]] = (),
    name: str = "rlhf-canary",
) -> tuple[str, str]:
    """Create or complete the check run of this workflow run.

    Returns its address and the reason for not writing it; one of them is empty.

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
    run = writing.of_this_attempt()
    if run is None:
        run = hub.write(
            what,
            writing.of_this_attempt,
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


def _give_way(writing: _Writing, run: CheckRun, theirs: Posted, stays: str, summary: str) -> None:
    """Give ours the conclusion of theirs, because GitHub shows ours in place of theirs.

    A check run cannot be deleted, and one without a conclusion blocks the merge.
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
    """Return all our check runs of this name on a commit, not only the one that GitHub shows."""
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
