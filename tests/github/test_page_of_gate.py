"""The page with charts of the reporting job: one file, linked once it is uploaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.layout import files_of
from canary.errors import MachineError, RecordError
from canary.gate.context import World
from canary.gate.inputs import ReportSettings
from canary.gate.manifest import Manifest, Part, write_manifest
from canary.gate.page import Uploaded, link
from canary.gate.report_job import answer
from canary.github.comment import parse
from tests.github.gatehouse import (
    BASE_CONFIG,
    Gatehouse,
    Said,
    pull_event,
    records_folder,
)
from tests.github.server import GitHub
from tests.github.state import Pull

PAGE = "https://github.example/org/repo/actions/runs/9/artifacts/4711"
ARCHIVE = "https://github.example/org/repo/actions/runs/9/artifacts/4712"
SLOW = 0.15


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    found = Gatehouse(tmp_path, github)
    found.baseline()
    return found


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts can be drawn, and the page is one word: what is tested is how it is linked."""
    monkeypatch.setattr("canary.gate.page.can_draw", lambda: True)
    monkeypatch.setattr("canary.gate.page.confined", lambda *_, **__: "page")


def linked_after(uploaded: Uploaded, between: Any = None) -> Any:
    """The report half, then the step that links what was uploaded."""

    def both(settings: ReportSettings, world: World) -> int:
        code = answer(settings, world)
        if between is not None:
            between(settings)
        assert link(settings, world, uploaded) == 0
        return code

    return both


def judged(house: Gatehouse, pull: Pull, uploaded: Uploaded, **more: Any) -> Said:
    return house.judge(pull, house.run(SLOW), by=linked_after(uploaded, **more))


def page(said: Said) -> Path:
    return Path(said.outputs["report-file"])


@pytest.mark.usefixtures("sketched")
def test_the_report_half_leaves_one_page_and_links_it_once_it_is_uploaded(
    house: Gatehouse, pull: Pull
) -> None:
    said = judged(house, pull, Uploaded(PAGE, ARCHIVE))
    assert said.code == 1
    assert page(said).name == "rlhf-canary-report.html"
    (comment,) = house.comments(pull)
    lines = comment.body.splitlines()
    (place,) = [n for n, line in enumerate(lines) if PAGE in line]
    assert lines[place] == f"- **Report**: [with charts]({PAGE})"
    assert place < lines.index("<details><summary>All figures and checks</summary>")
    assert lines[place - 1].startswith("- **"), "among the lines that a reviewer reads first"
    assert ARCHIVE not in comment.body
    assert f"Report: [with charts]({PAGE})" in said.summary
    (section,) = parse(comment.body)
    assert section.verdict == "regression"


@pytest.mark.usefixtures("sketched")
def test_the_comment_promises_no_report_before_it_is_uploaded(house: Gatehouse, pull: Pull) -> None:
    seen = []
    judged(house, pull, Uploaded(), between=lambda _: seen.append(house.comments(pull)[0].body))
    assert "Report**" not in seen[0]
    assert house.comments(pull)[0].body == seen[0], "nor if it never is"
    assert house.hub_repository.comments_on(pull.number)[0].body.count("\n- **") >= 1


@pytest.mark.usefixtures("sketched")
def test_where_only_an_archive_can_be_uploaded_the_comment_says_so(
    house: Gatehouse, pull: Pull
) -> None:
    judged(house, pull, Uploaded("", ARCHIVE))
    wanted = f"`rlhf-canary-report.html` in the [zipped report]({ARCHIVE})"
    assert f"- **Report**: {wanted}" in house.comments(pull)[0].body


@pytest.mark.spread(1)
@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize("odd", ["javascript:alert(1)", f"{PAGE}) [x](http://evil", f"{PAGE}\n# x"])
def test_an_address_that_is_none_is_not_linked(house: Gatehouse, pull: Pull, odd: str) -> None:
    judged(house, pull, Uploaded(odd))
    assert "Report**" not in house.comments(pull)[0].body


@pytest.mark.usefixtures("draws")
def test_several_canaries_are_one_page_the_worst_first(house: Gatehouse) -> None:
    names = ["canary.yaml", "second.yaml"]
    house.commit(files={"second.yaml": BASE_CONFIG.replace("sft_smoke", "other")})
    pull = house.pull()
    runs = [house.run(), house.run(SLOW)]

    def both(folder: Path) -> None:
        shutil.rmtree(folder / "records")
        for place, run in enumerate(runs):
            records_folder(folder / f"of{place}", [run])
            shutil.copytree(folder / f"of{place}/00-canary", folder / f"records/0{place}-canary")
        parts = [Part(config=one, folder=f"0{at}-canary") for at, one in enumerate(names)]
        write_manifest(folder / "records", Manifest(parts=parts))

    house.spoil = both
    said = house.judge(pull, runs[0], config="\n".join(names), by=linked_after(Uploaded(PAGE)))
    text = page(said).read_text()
    assert "default-src &#39;none&#39;" in text
    assert text.count("<article") == 2
    assert text.index('href="#part1-top"') < text.index('href="#part2-top"')
    assert len({*text.split('id="')}) == len(text.split('id="')), "no id stands twice"
    assert house.comments(pull)[0].body.count(PAGE) == 2, "in each canary's section"


@pytest.mark.usefixtures("draws")
@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        (MachineError("no report with charts: it takes more than 300 s"), "more than 300 s"),
        (RuntimeError("a bug"), "an unexpected RuntimeError"),
    ],
)
def test_a_page_that_cannot_be_drawn_costs_no_answer(
    house: Gatehouse, pull: Pull, monkeypatch: pytest.MonkeyPatch, breaks: Exception, why: str
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise breaks

    monkeypatch.setattr("canary.gate.page.confined", broken)
    said = house.judge(pull, house.run(SLOW))
    assert said.code == 1
    assert house.status(pull.head_sha)[0] == "failure"
    assert "report-file" not in said.outputs
    assert f"no report with charts: {why}" in said.log or why in said.log


def test_without_the_packages_the_answer_has_no_page(house: Gatehouse, pull: Pull) -> None:
    said = house.judge(pull, house.run(SLOW), by=linked_after(Uploaded()))
    assert said.code == 1
    assert "the packages that draw it are not installed" in said.log
    assert house.comments(pull)


@pytest.mark.usefixtures("draws")
def test_the_process_that_draws_has_no_token(
    house: Gatehouse, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    given: list[Any] = []
    real = subprocess.run

    def run(*words: Any, **more: Any) -> Any:
        if b"comparisons_text" in (more.get("input") or b""):
            given.append(more)
            return subprocess.CompletedProcess(words, 0, b'["page", "", ""]')
        return real(*words, **more)

    monkeypatch.setattr("subprocess.run", run)
    said = house.judge(pull, house.run(SLOW))
    assert page(said).read_text() == "page"
    (child,) = given
    assert set(child["env"]) <= {"PATH", "LANG", "LD_LIBRARY_PATH"}
    assert house.github.token.encode() not in child["input"]


@pytest.mark.usefixtures("sketched")
def test_a_link_that_an_earlier_job_left_is_not_made(house: Gatehouse, pull: Pull) -> None:
    """On a machine that stays, the file of another job may lie there."""
    left: list[bytes] = []
    judged(house, pull, Uploaded(), between=lambda s: left.append(s.link.read_bytes()))

    def stale(settings: ReportSettings, world: World) -> int:
        settings.link.write_bytes(left[0])
        return linked_after(Uploaded(PAGE))(settings, world)  # type: ignore[no-any-return]

    house.judge(pull, house.run(SLOW), by=stale, comment="false")
    assert PAGE not in house.comments(pull)[0].body


@pytest.mark.usefixtures("sketched")
def test_a_commit_that_moved_on_keeps_the_later_comment(house: Gatehouse, pull: Pull) -> None:
    def pushed(settings: ReportSettings) -> None:
        house.push_to(pull)

    said = judged(house, pull, Uploaded(PAGE), between=pushed)
    assert "the comment was not changed" in said.log
    assert PAGE not in house.comments(pull)[0].body


@pytest.mark.usefixtures("sketched")
def test_a_file_of_the_link_that_was_changed_is_a_notice(house: Gatehouse, pull: Pull) -> None:
    said = judged(
        house, pull, Uploaded(PAGE), between=lambda settings: settings.link.write_text("{}")
    )
    assert "the comment does not link the report" in said.log
    assert PAGE not in house.comments(pull)[0].body


@pytest.mark.usefixtures("sketched")
def test_a_users_template_may_leave_the_report_out_or_put_it_elsewhere(house: Gatehouse) -> None:
    own = '{% extends "comment.md.jinja" %}{% block lead %}{% endblock %}'
    elsewhere = own + "{% block footer %}See {{ source.report }}.\n{{ super() }}{% endblock %}"
    for text, count in ((own, 0), (elsewhere, 1)):
        house.commit(files={"own.jinja": text})
        pull = house.pull()
        by = linked_after(Uploaded(PAGE))
        house.report(
            "pull_request",
            pull_event(pull, "synchronize", None),
            [house.run(SLOW)],
            by=by,
            comment_template="own.jinja",
        )
        assert house.comments(pull)[0].body.count(PAGE) == count


def test_the_baseline_branch_takes_no_picture(tmp_path: Path) -> None:
    folder = tmp_path / "v2" / "sft" / "cpu"
    folder.mkdir(parents=True)
    (folder / "other.svg").write_text("<svg/>")
    with pytest.raises(RecordError, match="does not belong in a baseline history"):
        files_of(tmp_path)
