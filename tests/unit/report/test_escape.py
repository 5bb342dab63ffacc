"""No text of a record becomes markup, a mention, a reference, a link, or a command."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token as Piece

from canary.cli import main
from canary.cli.terminal import DisarmedLog
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import SMOKE_THRESHOLDS
from canary.github.comment import merged, parse, sections_of
from canary.github.status import Answer, Source
from canary.github.workflow import Job
from canary.report.escape import markdown_cell, markdown_code
from tests.unit.comparing import example
from tests.unit.hostile import PAYLOADS, planted

SOURCE = Source("a" * 40, "https://github.com/o/r/actions/runs/7/attempts/1", 7, 1)
OWN_LINES = re.compile(
    r'<!-- rlhf-canary( |:end |:section \{"version":1,"name":"[a-z0-9._-]+","sha":"a{40}",'
    r'"age":\[7,1\],"verdict":"[a-z-]+","accepted":false,"key":"[a-z0-9._-]+"\} )-->|'
    r"<details( open)?><summary>(?:[\w ]+ \(\d+\)|All figures and checks)</summary>|</details>|"
    r"</?sub>"
)
texts = st.text(min_size=0, max_size=60) | st.sampled_from(PAYLOADS)


def pieces(markdown: str) -> list[Piece]:
    """Every block and inline token, as GitHub's dialect has them."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    found = []
    for token in parser.parse(markdown):
        found.append(token)
        found += token.children or []
    return found


def assert_plain(markdown: str) -> None:
    found = pieces(markdown)
    markup = {"link_open", "image", "html_inline", "html_block", "s_open", "strong_open", "em_open"}
    assert not [token for token in found if token.type in markup], markdown
    assert not re.search(r"(?<!\w)@\w|#\d|GH-\d|\w://\w|www\.\w", markdown), markdown


@given(texts)
@settings(max_examples=300)
def test_a_cell_is_text_and_nothing_else(text: str) -> None:
    assert "\n" not in markdown_cell(text)
    assert_plain(f"x {markdown_cell(text)}")


@given(texts, texts)
@settings(max_examples=300)
def test_neither_cells_nor_code_leave_their_column(left: str, right: str) -> None:
    row = f"| {markdown_cell(left)} | {markdown_code(right)} | end |"
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table"])
    tokens = parser.parse(f"| a | b | c |\n|---|---|---|\n{row}\n")
    cells = [token for token in tokens if token.type == "td_open"]
    assert len(cells) == 3, row
    assert not [t for t in tokens if t.type == "html_block"]
    assert tokens[-4].content == "end" or any(t.content == "end" for t in tokens)


@pytest.mark.parametrize("machine", [False, True])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_comment_of_a_hostile_record_holds_no_markup_of_its_own(
    payload: str, machine: bool
) -> None:
    hostile = planted(payload, machine=machine)
    hostile.run_id = "hostile"
    found = compare_to_baseline(hostile, example(), SMOKE_THRESHOLDS)
    body = merged("", sections_of([Answer(payload, found)], SOURCE))
    assert body is not None
    html = [t.content for t in pieces(body) if t.type in ("html_inline", "html_block")]
    for content in html:
        left = OWN_LINES.sub("", content).strip()
        assert "<" not in left, content
    links = [t.attrs["href"] for t in pieces(body) if t.type == "link_open"]
    assert set(links) <= {SOURCE.url}
    assert not [t for t in pieces(body) if t.type == "image"]
    assert len(parse(body)) == 1
    assert body.count("<!--") == 3
    without_code = re.sub(r"`[^`]*`", "", body).replace(SOURCE.url, "")
    assert not re.search(r"(?<!\w)@\w|#\d|\w://\w", without_code)
    assert "\x1b" not in body


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_that_is_said_to_the_runner_is_a_command_or_a_second_output(
    payload: str, tmp_path: Path
) -> None:
    stream = io.StringIO()
    job = Job(stream, tmp_path / "output", tmp_path / "summary")
    job.line(payload)
    job.say("error", payload)
    job.set_outputs({"verdict": "error", "report-path": payload})
    commands = [line for line in stream.getvalue().split("\n") if line.startswith("::")]
    assert len(commands) == 1
    assert commands[0].startswith("::error title=RLHF Canary::")
    assert "##[" not in stream.getvalue() + (tmp_path / "output").read_text(encoding="utf-8")
    outputs = (tmp_path / "output").read_text(encoding="utf-8").splitlines()
    assert len(outputs) == 6
    assert outputs[0].startswith("verdict<<canary_")
    assert outputs[1] == "error"
    assert outputs[3].startswith("report-path<<canary_")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_that_a_verb_of_a_job_prints_is_a_command(
    payload: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_EVENT_PATH", "x")
    monkeypatch.setenv("GITHUB_API_URL", f"{payload}\n{payload}")
    for words in (["gate", "report"], ["gate", payload], ["gate", "report", payload]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code in (2, 4)
    printed = capsys.readouterr()
    assert_no_command(printed.out + printed.err)


def test_a_command_in_pieces_is_one_line_and_no_command() -> None:
    to = io.StringIO()
    stream = DisarmedLog(to)
    for piece in ("x #", "#", "[add-mask]pass\n:", ":error::y\r", "::", "z"):
        stream.write(piece)
    stream.end()
    assert_no_command(to.getvalue())
    assert to.getvalue().replace("\u200b", "") == "x ##[add-mask]pass\n::error::y\n::z"


def assert_no_command(log: str) -> None:
    """As the runner reads a log: `##[` anywhere in a line, `::` at its start."""
    assert "##[" not in log
    assert not [line for line in re.split(r"[\r\n]", log) if line.strip().startswith("::")], log


def test_a_summary_stays_under_githubs_limit(tmp_path: Path) -> None:
    job = Job(io.StringIO(), None, tmp_path / "summary")
    job.add_summary("x" * 700_000)
    job.add_summary("ä" * 700_000)
    assert (tmp_path / "summary").stat().st_size <= 1 << 20
    assert "cut here" in (tmp_path / "summary").read_text(encoding="utf-8")


def test_a_commit_is_a_code_span_that_can_be_copied_unchanged() -> None:
    assert markdown_cell("commit 1e06f8183 of x") == "commit `1e06f8183` of x"
    assert markdown_cell("`1e06f8183`") == "\\``1e06f8183`\\`"
    assert markdown_cell("20261123 1,536 added") == "20261123 1,536 added"
