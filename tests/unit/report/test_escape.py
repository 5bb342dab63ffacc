"""No text of a record becomes markup, a mention, a reference, a link, or a command."""

from __future__ import annotations

import functools
import html
import io
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.cli import main
from canary.cli.terminal import DisarmedLog
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import SMOKE_THRESHOLDS
from canary.github.comment import comment_of, parse, sections_of
from canary.github.status import Answer, Source
from canary.github.workflow import Job
from canary.report.escape import (
    NOT_PRINTED,
    ZERO_WIDTH,
    markdown_cell,
    markdown_code,
    markdown_code_cell,
)
from tests.unit.comparing import example
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.report.gfm import FALSE, filled, layout, mentions, shown, templates

SOURCE = Source("a" * 40, "https://github.com/o/r/actions/runs/7/attempts/1", 7, 1)
PIECES = (
    *"*_~()[]<>|`#:@.!=+-$&;^/\\ \t\n\u200b\ufeff\u2003\xa0éx7",
    *("www.", "http://", "ftp://", "mailto:", "xmpp:", "evil.example", "a@b.example", "@org/team"),
    *("#1", "gh-2", "GH-4", "o/r#3", "u@1e06f8183", "1e06f8183", "1.", "1)", "---", "===", "```"),
    *("~~~", "&lt;", "&#64;", "&commat;", "<!--", "-->", "<b>"),
    *("<a href=x>", "</details>", "![x](y)", "[x](y)", "[x]: ", "commit ", "    "),
)
texts = (
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
    | st.text(max_size=40)
    | st.sampled_from(PAYLOADS)
)
COMMANDS = [payload for payload in PAYLOADS if re.search(r"::|##\[|\n", payload)]
LINKS = (
    *(f"{before}www.evil.example/login" for before in ("", "_", "*", "~", "(", "x_", "é")),
    *("_http://evil.example", "(ftp://evil.example", "_mailto:a@b.example", "~xmpp:a@b.example"),
    *("a@b.example", "_a@b.example_", "a@.example", "a+b@c-d.example"),
    *("_@org/team", "_GH-1", "_#1", "o/r#1", "u@1e06f8183", "_1e06f8183_", "1E06F8183"),
)
BLOCKS = (
    *("> quote", "1. item", "12) item", "1.", "1", "- item", "+ item", "* item", "-", "---"),
    *("- - -", "===", "=", "# title", "| a |", ":-:", "-:", "    code", "\tcode", "```", "~~~"),
    *("[x]: y", "<details>", "&#62; x"),
)


@functools.cache
def of_a_word(template: str, empty: frozenset[str]) -> tuple[list[str], list[str]]:
    """The layout and the mentions of a template with a word in each place."""
    page = shown(filled(template, "word", empty))
    return layout(page), mentions(page)


def assert_plain(template: str, text: str, empty: frozenset[str] = FALSE) -> None:
    """The template has the layout that it has with a word, and no link in any text."""
    page = shown(filled(template, text, empty))
    assert (layout(page), mentions(page)) == of_a_word(template, empty), f"{text!r}\n{page}"


@pytest.mark.parametrize("template", templates())
@given(text=texts.filter(markdown_cell))
@settings(max_examples=15, deadline=None)
def test_no_text_changes_a_templates_layout_or_becomes_a_link(template: str, text: str) -> None:
    assert_plain(template, text)


@pytest.mark.parametrize("empty", [FALSE, frozenset(("link", "passed"))])
def test_no_link_may_begin_and_no_block_may_open(empty: frozenset[str]) -> None:
    for text in (*LINKS, *BLOCKS):
        for template in templates():
            assert_plain(template, text, empty)


@given(text=texts.filter(markdown_cell))
@settings(max_examples=100)
def test_a_reader_sees_the_text_itself(text: str) -> None:
    unseen = f"[{ZERO_WIDTH}\\ufeff\\s]"
    wanted = re.sub(unseen, "", NOT_PRINTED.sub(" ", text))
    for before in ("", "x\n", "- ", "1. ", "> "):
        page = html.unescape(re.sub(r"<[^>]*>", "", shown(f"{before}{markdown_cell(text)}")))
        seen = re.sub(unseen, "", page)
        assert seen.removeprefix("x" if "x" in before else "") == wanted


@pytest.mark.parametrize("code", ["cat a | sort", "<|assistant|>", r"a\\|b"])
def test_code_with_bars_is_shown_unchanged_in_a_table_and_outside(code: str) -> None:
    unseen = html.escape(code, quote=False)
    assert f"<code>{unseen}</code>" in shown(markdown_code(code))
    cell = shown(f"| a | b |\n|---|---|\n| {markdown_code_cell(code)} | c |\n")
    assert f"<td><code>{unseen}</code></td>" in cell.replace(ZERO_WIDTH, "")


def comment_about(payload: str, *, machine: bool) -> str:
    """Return the comment about a record with the payload in each text."""
    hostile = planted(payload, machine=machine)
    hostile.run_id = "hostile"
    found = compare_to_baseline(hostile, example(), SMOKE_THRESHOLDS)
    return comment_of(sections_of([Answer(payload, found)], SOURCE))


@pytest.mark.spread(1)
@pytest.mark.parametrize("machine", [False, True])
def test_a_comment_of_a_hostile_record_looks_like_that_of_a_plain_one(machine: bool) -> None:
    plain = shown(comment_about("word", machine=machine))
    for payload in (*PAYLOADS, *LINKS[::4], *BLOCKS[::4]):
        body = comment_about(payload, machine=machine)
        page = shown(body)
        assert layout(page) == layout(plain), body
        assert set(re.findall('(?:href|src)="([^"]*)"', page)) == {SOURCE.url}
        assert mentions(page) == mentions(plain), body
        assert len(parse(body)) == 1
        assert body.count("<!--") == 2
        assert "\x1b" not in body


@pytest.mark.parametrize("payload", COMMANDS)
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


@pytest.mark.parametrize("payload", COMMANDS)
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
