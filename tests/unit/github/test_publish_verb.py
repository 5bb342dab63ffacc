"""`canary publish`: what it would post, and what it needs before it does."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from canary.cli import app
from canary.compare.report import Comparison
from canary.errors import InputError, RecordError, UsageError
from canary.github.by_hand import Posting, post
from canary.github.client import Refused
from canary.github.comment import merged, sections_of
from canary.github.publish import Channels, publish
from canary.github.status import Answer, Source
from canary.github.workflow import Job
from canary.record import jsonio
from canary.report.render import written
from tests.unit.github.test_comment import slow
from tests.unit.report.test_rendering import CASES

SHA = "c" * 40
RECORD = Path(__file__).parents[3] / "baselines" / "examples" / "sft_smoke.json"


@pytest.fixture
def posting(tmp_path: Path) -> Posting:
    written(slow(), tmp_path / "found")
    return Posting(
        comparisons=(tmp_path / "found",),
        repository="org/repo",
        pull_request=7,
        sha=SHA,
        status="commit-status",
        comment=True,
        template=None,
        strict=False,
        dry_run=True,
    )


def said(posting: Posting) -> str:
    out = io.StringIO()
    assert post(posting, {}, Job(io.StringIO()), out) == 0
    return out.getvalue()


def test_a_dry_run_prints_status_and_comment_and_needs_no_token(posting: Posting) -> None:
    text = said(posting)
    assert f"commit-status on {SHA[:9]} of org/repo: failure: Regression: median step" in text
    assert "comment on #7 of org/repo:" in text
    assert "<!-- rlhf-canary -->" in text
    assert "<summary>All figures and checks" in text


@pytest.mark.parametrize("verdict", CASES)
def test_what_is_posted_by_hand_is_the_comment_that_the_action_posts(
    verdict: str, posting: Posting, tmp_path: Path
) -> None:
    found = CASES[verdict]()
    written(found, tmp_path / verdict)
    text = said(replace(posting, comparisons=(tmp_path / verdict,)))
    posted = sections_of([Answer(found.current.name, found)], Source(SHA))
    assert (merged("", posted) or "nothing") in text
    assert ("Likely cause" in text or "Cause not found" in text) == (
        verdict in ("regression", "changed", "error")
    )


def test_a_comparison_of_an_earlier_version_without_a_diagnosis_is_posted(
    posting: Posting, tmp_path: Path
) -> None:
    document = jsonio.loads((tmp_path / "found" / "comparison.json").read_text())
    del document["diagnosis"], document["alerts"]
    (tmp_path / "found" / "comparison.json").write_text(jsonio.dumps(document))
    assert "Regression: median step" in said(posting)


def test_a_dry_run_says_what_is_missing_and_posts_no_verdict_as_exit_code(posting: Posting) -> None:
    text = said(replace(posting, repository="", pull_request=None, sha=""))
    assert "(no --repository)" in text
    assert "(no --pull-request)" in text


def test_a_dry_run_without_a_commit_makes_none_up(posting: Posting) -> None:
    text = said(replace(posting, sha=""))
    assert "`000000000`" not in text
    assert "commit-status on no commit of org/repo" in text
    assert "<sub>no commit</sub>" in text


def test_a_template_is_tried_in_a_dry_run(posting: Posting, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text('{% extends "comment.md.jinja" %}{% block footer %}ours{% endblock %}')
    assert "ours" in said(replace(posting, template=path))
    path.write_text("{{ view.typo }}")
    assert "note: the comment template cannot be rendered" in said(replace(posting, template=path))


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"repository": ""}, "no repository to post to"),
        ({"repository": "repo"}, "'repo' is not a repository .--repository OWNER/NAME"),
        ({"sha": "abc"}, "'abc' is not a full commit SHA .give all 40 digits"),
        ({"pull_request": 0}, "--pull-request 0"),
        ({"status": "loud"}, "one of commit-status"),
    ],
)
def test_posting_needs_a_place(posting: Posting, change: dict[str, str], remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        post(replace(posting, dry_run=False, **change), {}, Job(io.StringIO()), io.StringIO())  # type: ignore[arg-type]


def test_posting_needs_a_token(posting: Posting) -> None:
    with pytest.raises(UsageError, match=r"no token.*set GITHUB_TOKEN or CANARY_TOKEN"):
        post(replace(posting, dry_run=False), {}, Job(io.StringIO()), io.StringIO())


@pytest.mark.parametrize(
    "change", [{"repository": "nonsense"}, {"sha": "abc"}, {"pull_request": -3}], ids=str
)
def test_a_dry_run_refuses_the_forms_that_posting_would(
    posting: Posting, change: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        said(replace(posting, **change))


@pytest.mark.parametrize(
    ("name", "value"),
    [("GITHUB_RUN_ID", "seven"), ("GITHUB_RUN_ID", "²"), ("GITHUB_API_URL", "ftp://x")],
)
def test_a_variable_that_cannot_be_is_named(posting: Posting, name: str, value: str) -> None:
    environ = {"GITHUB_TOKEN": "t", name: value}
    with pytest.raises(UsageError, match=name):
        post(replace(posting, dry_run=False), environ, Job(io.StringIO()), io.StringIO())


def test_a_dry_run_shows_the_title_of_a_check_run(posting: Posting) -> None:
    assert "with the title: Regression: median step" in said(replace(posting, status="check-run"))
    both = said(replace(posting, status="both"))
    assert "commit-status on" in both
    assert "check-run on" in both


def test_a_record_is_told_from_a_comparison(posting: Posting) -> None:
    with pytest.raises(InputError, match=r"is the record of a run.*compare it first"):
        said(replace(posting, comparisons=(RECORD,)))


def test_strict_says_what_it_does_here() -> None:
    shown = CliRunner().invoke(app, ["publish", "--help"], env={"COLUMNS": "200"}).output
    assert "verdict as a failure" in " ".join(shown.split())


def test_what_is_no_comparison_is_refused(posting: Posting, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no comparison at"):
        said(replace(posting, comparisons=(tmp_path / "nothing",)))
    (tmp_path / "x.json").write_text('{"schema_version": 1, "verdict": "fine"}')
    with pytest.raises(RecordError, match="is not a comparison"):
        said(replace(posting, comparisons=(tmp_path / "x.json",)))


@pytest.mark.parametrize("what", ["", "the comment on the check run", "the status of the comment"])
def test_a_refusal_names_the_permission_of_its_channel_whatever_was_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Refused(what, 403, "403 no")

    for write in ("set_status", "write_check_run", "write_comment"):
        monkeypatch.setattr(f"canary.github.publish.{write}", refuse)
    anything: Any = SimpleNamespace()
    channels = Channels(status="both", author="me")
    answers = (Answer("sft", Comparison("pass", "Pass.")),)
    said = publish(anything, anything, 1, Source("a" * 40), answers, channels, Job(io.StringIO()))
    needed = [notice.partition("`")[2].partition("`")[0] for notice in said.notices]
    assert needed == ["statuses: write", "checks: write", "pull-requests: write"]
