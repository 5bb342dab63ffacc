"""On the default branch: what began where, once per change, and the issue of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary.errors import MachineError
from canary.github.trend_issue import mark_of
from canary.report.trend_news import FollowedSeries, News, Noted
from tests.github.gatehouse import Gatehouse, Said, git
from tests.github.server import GitHub
from tests.github.state import BOT, Issue

pytestmark = pytest.mark.usefixtures("analyses")
RUNS = 12
WORSE = "Step time +6.1% [4.0, 8.2] since commit {}, confirmed by three runs."
BETTER = "Step time -5.8% [-7.9, -3.6] since commit {}, confirmed by three runs."


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    github.permissions["issues"] = "write"
    made = Gatehouse(tmp_path, github)
    made.baseline(RUNS)
    return made


def shas(house: Gatehouse) -> list[str]:
    """The commits of the default branch, oldest first."""
    return git(house.work, "rev-list", "--reverse", "main").splitlines()


def noted(house: Gatehouse, place: int, **values: Any) -> Noted:
    """A confirmed step for the worse at a place."""
    commits = shas(house)
    better = values.get("worse") is False
    words = (BETTER if better else WORSE).format(commits[place][:9])
    given = {
        "kind": "step",
        "place": place,
        "within": (place, place),
        "commit": commits[place],
        "before": commits[place - 1],
        "standing": "confirmed",
        "worse": True,
        "new": False,
        "sentence": words,
        "change": -0.058 if better else 0.061,
        "noise": 0.01,
    }
    return Noted.model_validate(given | values)


Pushed = Callable[..., Said]


@pytest.fixture
def pushed(house: Gatehouse, monkeypatch: pytest.MonkeyPatch) -> Pushed:
    """Pushes to the default branch; the analysis finds what is given."""

    def push(*found: Noted, accepted: tuple[int, ...] = (), **inputs: Any) -> Said:
        series = FollowedSeries(
            metric="step_time_median",
            title="step time",
            commits=shas(house),
            accepted=list(accepted),
            noted=list(found),
        )
        news = News(canary="sft_smoke", machine="cpu-x", series=[series], seconds=30.0)
        monkeypatch.setattr("canary.gate.trends.confined", lambda *_, **__: news.model_dump_json())
        return house.push_main(house.run(), **inputs)

    return push


def issues(house: Gatehouse) -> list[Issue]:
    return list(house.hub_repository.issues.values())


def test_what_is_new_goes_into_the_summary_with_the_command_that_finds_it(
    house: Gatehouse, pushed: Pushed
) -> None:
    one = noted(house, 8, new=True, within=(7, 9))
    said = pushed(one)
    good, bad = shas(house)[6][:9], shas(house)[9][:9]
    (line,) = [line for line in said.summary.splitlines() if "Step time +6.1%" in line]
    assert "### Since when" in said.summary
    assert line.startswith("- `sft_smoke` on `cpu-x`: Step time +6.1% \\[4.0, 8.2\\] since commit")
    assert (
        f"`canary bisect canary.yaml --good {good} --bad {bad} --check step_time_median` (about "
        in line
    )
    assert "::warning title=RLHF Canary::sft_smoke on cpu-x: Step time +6.1%25 [4.0, " in said.log
    assert said.code == 0


def test_what_an_earlier_run_said_is_not_said_again(house: Gatehouse, pushed: Pushed) -> None:
    said = pushed(noted(house, 8))
    assert "Since when" not in said.summary
    assert "no new change in its history" in said.log


def test_a_change_for_the_better_is_no_warning(house: Gatehouse, pushed: Pushed) -> None:
    said = pushed(noted(house, 8, new=True, worse=False))
    assert "Step time -5.8%" in said.summary
    assert "::notice title=RLHF Canary::sft_smoke on cpu-x: Step time -5.8%25" in said.log
    assert "canary bisect" not in said.summary


def test_where_the_commit_is_known_no_search_is_named(house: Gatehouse, pushed: Pushed) -> None:
    assert "canary bisect" not in pushed(noted(house, 8, new=True)).summary


def test_without_being_asked_no_issue_is_read_or_written(
    house: Gatehouse, pushed: Pushed, github: GitHub
) -> None:
    pushed(noted(house, 8, new=True))
    assert not issues(house)
    assert not github.sent(path="/issues")


def test_one_issue_is_opened_and_kept_up_to_date(house: Gatehouse, pushed: Pushed) -> None:
    first = pushed(noted(house, 8, new=True), trend_issue="true")
    (issue,) = issues(house)
    assert f"issues/{issue.number} opened" in first.log
    assert issue.title == f"sft_smoke on cpu-x: step time got worse since {shas(house)[8][:9]}"
    assert issue.author == BOT
    assert mark_of(issue.body) is not None
    assert "**Step time** of `sft\\_smoke`" not in issue.body
    assert "**Step time** of `sft_smoke` on `cpu-x` got worse, and the level holds." in issue.body
    again = pushed(noted(house, 8), trend_issue="true")
    assert (issue.edits, house.hub_repository.comments_on(issue.number)) == (0, [])
    assert "updated" not in again.log
    text = "Step time +6.6% [5.1, 8.0] since commit abc, confirmed by four runs."
    pushed(noted(house, 8, sentence=text), trend_issue="true")
    assert len(issues(house)) == 1
    assert "+6.6%" in issue.body
    assert not house.hub_repository.comments_on(issue.number), "a number alone notifies nobody"


def test_the_same_change_seen_at_the_next_commit_is_not_told_again(
    house: Gatehouse, pushed: Pushed
) -> None:
    pushed(noted(house, 8, new=True), trend_issue="true")
    (issue,) = issues(house)
    pushed(noted(house, 9, within=(8, 10)), trend_issue="true")
    assert len(issues(house)) == 1
    assert not house.hub_repository.comments_on(issue.number)
    assert issue.title.endswith(shas(house)[9][:9])


def test_another_change_is_told_once_in_a_comment(house: Gatehouse, pushed: Pushed) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (issue,) = issues(house)
    for _ in range(2):
        pushed(noted(house, 4), noted(house, 10, new=True), trend_issue="true")
    (comment,) = house.hub_repository.comments_on(issue.number)
    assert shas(house)[10][:9] in comment.body
    assert issue.body.count("\n- ") == 2


def test_it_is_closed_when_the_level_returns_and_opened_again_when_it_comes_again(
    house: Gatehouse, pushed: Pushed
) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (issue,) = issues(house)
    back = (noted(house, 4, standing="returned"), noted(house, 8, worse=False, new=True))
    for _ in range(2):
        said = pushed(*back, trend_issue="true")
    assert (issue.state, issue.state_reason) == ("closed", "completed")
    (comment,) = house.hub_repository.comments_on(issue.number)
    assert "The level returned. Step time -5.8%" in comment.body
    assert "closed" not in said.log, "once"
    said = pushed(*back, noted(house, 11, new=True), trend_issue="true")
    assert (issue.state, issue.state_reason) == ("open", "reopened")
    assert f"issues/{issue.number} reopened" in said.log
    assert shas(house)[11][:9] in house.hub_repository.comments_on(issue.number)[-1].body
    pushed(
        *back,
        noted(house, 11, standing="returned"),
        noted(house, 14, worse=False),
        trend_issue="true",
    )
    assert issue.state == "closed"
    assert len(house.hub_repository.comments_on(issue.number)) == 3


def test_an_accepted_change_closes_it(house: Gatehouse, pushed: Pushed) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (issue,) = issues(house)
    pushed(noted(house, 4), accepted=(9,), trend_issue="true")
    assert issue.state == "closed"
    assert "Someone accepted the level" in house.hub_repository.comments_on(issue.number)[0].body


@pytest.mark.parametrize("left", ["nothing", "waiting"])
def test_it_stays_open_while_nothing_shows_that_the_level_returned(
    house: Gatehouse, pushed: Pushed, left: str
) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (issue,) = issues(house)
    pushed(
        *([noted(house, 4, standing="waiting")] if left == "waiting" else []), trend_issue="true"
    )
    assert issue.state == "open"


def test_the_change_may_be_older_than_the_stored_runs(house: Gatehouse, pushed: Pushed) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (issue,) = issues(house)
    body = mark_of(issue.body)
    assert body is not None
    issue.body = issue.body.replace(body.told[0], "f" * 12)
    pushed(trend_issue="true")
    assert issue.state == "open", "nothing is known of it any more"
    pushed(noted(house, 9, worse=False), trend_issue="true")
    assert issue.state == "closed"


def test_what_a_person_closed_stays_closed_until_another_change(
    house: Gatehouse, pushed: Pushed
) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (issue,) = issues(house)
    issue.state, issue.closed = "closed", issue.updated
    pushed(noted(house, 4), trend_issue="true")
    assert issue.state == "closed"
    pushed(noted(house, 4), noted(house, 10, new=True), trend_issue="true")
    assert issue.state == "open"


def test_a_strangers_issue_with_our_mark_is_left_alone(house: Gatehouse, pushed: Pushed) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (ours,) = issues(house)
    stolen = ours.body
    ours.body = "not any more"
    forged = house.hub_repository.add_issue("Mine", stolen, "mallory")
    pull = house.pull(author=BOT)
    pushed(noted(house, 4), trend_issue="true")
    assert (forged.edits, forged.state) == (0, "open")
    assert pull.state == "open"
    assert len(issues(house)) == 3, "a new one of ours"


def test_of_several_of_ours_the_oldest_is_kept(house: Gatehouse, pushed: Pushed) -> None:
    pushed(noted(house, 4, new=True), trend_issue="true")
    (first,) = issues(house)
    second = house.hub_repository.add_issue("Twice", first.body, BOT)
    for _ in range(2):
        pushed(noted(house, 4), trend_issue="true")
    assert (first.state, second.state, second.state_reason) == ("open", "closed", "not_planned")
    (comment,) = house.hub_repository.comments_on(second.number)
    assert f"#{first.number}" in comment.body


@pytest.mark.parametrize("mark", ["{}", '{"version":2}', "[" * 3000, '{"version":1,"key":"x"}'])
def test_a_mark_that_is_none_is_no_issue_of_ours(
    house: Gatehouse, pushed: Pushed, mark: str
) -> None:
    odd = house.hub_repository.add_issue("Odd", f"<!-- rlhf-canary:trend {mark} -->\n", BOT)
    pushed(noted(house, 4, new=True), trend_issue="true")
    assert odd.edits == 0
    assert len(issues(house)) == 2


@pytest.mark.parametrize("applied", [True, False])
def test_a_502_leaves_one_issue(
    house: Gatehouse, pushed: Pushed, github: GitHub, applied: bool
) -> None:
    github.trouble.fail("POST", "/issues", applied=applied)
    pushed(noted(house, 4, new=True), trend_issue="true")
    assert len(issues(house)) == 1


@pytest.mark.parametrize("level", ["read", "none"])
def test_without_the_permission_one_line_names_it_and_the_answer_is_given(
    house: Gatehouse, pushed: Pushed, github: GitHub, level: str
) -> None:
    house.hub_repository.private = True
    github.permissions |= {"issues": level, "pull_requests": "read"}
    said = pushed(noted(house, 8, new=True), trend_issue="true")
    assert said.code == 0
    assert said.log.count("issues: write") == 1
    assert "Step time +6.1%" in said.summary
    assert not issues(house)


def test_a_repository_without_issues_is_told(house: Gatehouse, pushed: Pushed) -> None:
    house.hub_repository.has_issues = False
    said = pushed(noted(house, 8, new=True), trend_issue="true")
    assert "the repository has no issues" in said.log
    assert said.code == 0


def test_a_records_text_is_escaped_in_issue_summary_and_log(
    house: Gatehouse, pushed: Pushed
) -> None:
    evil = "@team #1 <!-- x --> [a](http://evil) ::error::x `a`"
    said = pushed(noted(house, 8, new=True, sentence=evil), trend_issue="true")
    (issue,) = issues(house)
    for text in (issue.body, said.summary):
        assert "@team" not in text
        assert "[a](http:" not in text
        assert "<!-- x" not in text
    assert "\n::error" not in said.log


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "its result is not valid"),
        ("not json", "its result is not valid"),
        (MachineError("the history was not analysed: it takes more than 300 s"), "300 s"),
        (RuntimeError("a bug"), "an unexpected RuntimeError"),
    ],
)
def test_a_failure_costs_this_part_alone_and_is_said(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch, text: str | Exception, why: str
) -> None:
    def broken(*_: object, **__: object) -> str:
        if isinstance(text, Exception):
            raise text
        return text

    monkeypatch.setattr("canary.gate.trends.confined", broken)
    before = len(house.entries())
    said = house.push_main(house.run(), trend_issue="true")
    assert said.code == 0
    assert len(house.entries()) == before + 1
    assert "the history was not analysed: " in said.log
    assert why in said.log


def test_a_pull_request_analyses_nothing(house: Gatehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> str:
        raise AssertionError

    monkeypatch.setattr("canary.gate.trends.confined", never)
    said = house.judge(house.pull(), house.run(), trend_issue="true")
    assert "analysed" not in said.log


def test_a_real_history_is_analysed_in_a_process_without_the_token(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canary.gate.trends.can_analyse", lambda: False)
    for _ in range(2):
        house.push_main(house.run(0.106))
    monkeypatch.setattr("canary.gate.trends.can_analyse", lambda: True)
    given: list[Any] = []
    real = subprocess.run

    def run(*words: Any, **more: Any) -> Any:
        if b"news_text" in (more.get("input") or b""):
            given.append(more)
        return real(*words, **more)

    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    monkeypatch.setattr("subprocess.run", run)
    said = house.push_main(house.run(0.106))
    assert f"since commit `{shas(house)[RUNS][:9]}`" in said.summary
    assert said.summary.count("- `sft_smoke` on") == 1, "tokens per second say the same"
    (child,) = given
    assert set(child["env"]) <= {"PATH", "LANG", "LD_LIBRARY_PATH"}
    assert house.github.token.encode() not in child["input"]


@pytest.mark.slow
@pytest.mark.parametrize("slow", [0.106, 0.13], ids=["within the limit", "red"])
def test_a_real_change_is_told_once_and_its_issue_is_closed_at_the_end(
    house: Gatehouse, slow: float
) -> None:
    said = [house.push_main(house.run(slow), trend_issue="true") for _ in range(5)]
    told = [n for n, one in enumerate(said) if "### Since when" in one.summary]
    assert len(told) == 1
    first = shas(house)[RUNS]
    assert f"since commit `{first[:9]}`" in said[told[0]].summary
    (issue,) = issues(house)
    assert first[:9] in issue.title
    for _ in range(6):
        house.push_main(house.run(), trend_issue="true")
    assert (issue.state, issue.state_reason) == ("closed", "completed")
    assert len(house.hub_repository.comments_on(issue.number)) == 1
    assert len(issues(house)) == 1
