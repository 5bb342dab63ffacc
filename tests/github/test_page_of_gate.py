"""The page with charts of the reporting job: one file, which the comment links."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.branch import Found, check_listing
from canary.errors import MachineError, RecordError
from canary.gate.records import Manifest, Part, write_manifest
from canary.github.comment import parse
from tests.github.gatehouse import BASE_CONFIG, Gatehouse, Said, records_folder
from tests.github.server import GitHub
from tests.github.state import Pull

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


def page(said: Said) -> Path:
    return Path(said.outputs["report-file"])


def link(said: Said) -> str:
    """To the artifacts of the run that answered."""
    number = Path(said.outputs["report-path"]).parent.name.split("-")[1]
    return f"[with charts](https://github.example/org/repo/actions/runs/{number}#artifacts)"


@pytest.mark.usefixtures("sketched")
def test_the_report_half_leaves_one_page_and_links_the_runs_artifacts(
    house: Gatehouse, pull: Pull
) -> None:
    said = house.judge(pull, house.run(SLOW))
    assert said.code == 1
    assert page(said).name == "rlhf-canary-report.html"
    (comment,) = house.comments(pull)
    lines = comment.body.splitlines()
    place = lines.index(f"- **Report**: {link(said)}")
    assert place < lines.index("<details><summary>All figures and checks</summary>")
    assert lines[place - 1].startswith("- **"), "among the lines that a reviewer reads first"
    assert f"Report**: {link(said)}" in said.summary
    (section,) = parse(comment.body)
    assert section.verdict == "regression"


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
    said = house.judge(pull, runs[0], config="\n".join(names))
    text = page(said).read_text()
    assert "default-src &#39;none&#39;" in text
    assert text.count("<article") == 2
    assert text.index('href="#part1-top"') < text.index('href="#part2-top"')
    assert len({*text.split('id="')}) == len(text.split('id="')), "no id stands twice"
    assert house.comments(pull)[0].body.count(link(said)) == 2, "in each canary's section"


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
    said = house.judge(pull, house.run(SLOW))
    assert said.code == 1
    assert "Report**" not in house.comments(pull)[0].body
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
            return subprocess.CompletedProcess(words, 0, b'["page", ""]')
        return real(*words, **more)

    monkeypatch.setattr("subprocess.run", run)
    said = house.judge(pull, house.run(SLOW))
    assert page(said).read_text() == "page"
    (child,) = given
    assert set(child["env"]) <= {"PATH", "LANG", "LD_LIBRARY_PATH"}
    assert house.github.token.encode() not in child["input"]


def test_the_baseline_branch_takes_no_picture() -> None:
    picture = Found("100644", "blob", "", 6, "v2/sft/cpu/other.svg")
    with pytest.raises(RecordError, match="does not belong in a baseline history"):
        check_listing([picture])
