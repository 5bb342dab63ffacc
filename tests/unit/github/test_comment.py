"""The one comment: sections by canary, cut to size, and never older than what is there."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from canary.compare.diagnosis.source_changes import parse_diff
from canary.compare.report import Check, Comparison, KeyChange, Side
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import SMOKE_THRESHOLDS
from canary.github.comment import LIMIT, comment_of, has_sections, merged, parse, sections_of
from canary.github.section import section
from canary.github.status import LONGEST_DESCRIPTION, Answer, Source, shortened, status_of, worst
from canary.report.render import render
from tests.unit.comparing import history, record, records

NEW, OLD = "b" * 40, "a" * 40


def source(sha: str = NEW, run: int = 7, attempt: int = 1) -> Source:
    return Source(sha, f"https://github.com/o/r/actions/runs/{run}", run, attempt)


def comparison(verdict: str = "pass", line: str = "Pass: nothing got worse.") -> Comparison:
    return Comparison(verdict, line)  # type: ignore[arg-type]


def slow() -> Comparison:
    return compare_to_baseline(
        records([0.2] * 3, 1000), records([0.1] * 3), SMOKE_THRESHOLDS, paired=True
    )


def body(answers: dict[str, Comparison], at: Source) -> str:
    return comment_of(sections_of([Answer(name, found) for name, found in answers.items()], at))


def test_the_first_line_a_reader_sees_is_the_answer() -> None:
    text = body({"sft": slow()}, source())
    shown = [line for line in text.splitlines() if not line.startswith("<!--")]
    assert shown[0].startswith("**❌ Regression: median step time")


def test_two_canaries_have_a_section_each_and_a_headline_with_the_worst_first() -> None:
    text = body({"sft": comparison(), "dpo": slow()}, source())
    assert [one.name for one in parse(text)] == ["dpo", "sft"]
    assert text.splitlines()[0] == "**❌ regression: `dpo` · pass: `sft`**"


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b.yaml", "a-b.yaml"), ("A.yaml", "a.yaml"), ("x" * 300 + "1", "x" * 300 + "2")],
)
def test_two_configs_of_similar_paths_and_one_name_have_a_section_each(
    one: str, other: str
) -> None:
    answers = [Answer("sft", comparison(), one), Answer("sft", slow(), other)]
    found = parse(comment_of(sections_of(answers, source())))
    assert sorted(one.verdict for one in found) == ["pass", "regression"]
    assert len({one.key for one in found}) == 2
    assert all(len(one.key) <= 100 for one in found)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"verdict": "fine"},
        {"accepted": "yes"},
        {"age": [7]},
        {"sha": "not a commit"},
        {"name": "x y"},
        {"name": "x" * 1000},
        {"more": 1},
    ],
    ids=str,
)
def test_a_mark_that_is_not_as_this_version_writes_it_is_no_section(
    change: dict[str, object],
) -> None:
    text = body({"sft": comparison()}, source())
    written = text.partition("section ")[2].partition(" -->")[0]
    fields = {**json.loads(written), **change}
    if fields["version"] is None:
        del fields["version"]
    assert len(parse(text)) == 1
    assert not parse(text.replace(written, json.dumps(fields)))
    assert not parse(text.replace(written, "{" * 900))


def test_what_a_reader_sees_says_nothing_to_a_later_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the comment's first line, or the word for an accepted change."""
    found = replace(comparison("changed", "Accepted, says who wrote this."), accepted="a label")
    before = body({"sft": found, "dpo": comparison()}, source())
    monkeypatch.setattr("canary.github.comment.ACCEPTED", "regression")
    monkeypatch.setattr(
        "canary.github.comment.section", lambda *_: "**regression**: accepted: false"
    )
    after = body({"sft": found, "dpo": comparison()}, source())
    told = [
        [(one.name, one.verdict, one.accepted, one.age) for one in parse(text)]
        for text in (before, after)
    ]
    assert told[0] == told[1] == [("dpo", "pass", False, (7, 1)), ("sft", "changed", True, (7, 1))]


def test_a_newer_commit_drops_the_sections_of_the_older_one() -> None:
    first = body({"sft": comparison(), "dpo": comparison()}, source(OLD))
    together = merged([first], sections_of([Answer("sft", slow())], source(NEW)))
    assert [(one.name, one.sha) for one in together or ()] == [("sft", NEW)]


def test_of_one_canarys_sections_the_later_runs_stays() -> None:
    there = body({"sft": comparison()}, source(run=9))
    mine = [Answer("sft", slow())]
    assert merged([there], sections_of(mine, source(run=8))) is None
    for new in (sections_of(mine, source(run=9)), sections_of(mine, source(run=9, attempt=2))):
        assert merged([there], new) == new
    both = sections_of([*mine, Answer("dpo", slow())], source(run=8))
    together = merged([there], both)
    assert [(one.name, one.age) for one in together or ()] == [("dpo", (8, 1)), ("sft", (9, 1))]


def test_a_section_that_another_job_overwrote_is_missed() -> None:
    mine = sections_of([Answer("sft", comparison())], source())
    assert not has_sections(body({"dpo": comparison()}, source()), mine)


def test_line_breaks_as_github_returns_them_are_understood() -> None:
    text = body({"sft": comparison()}, source())
    assert parse(text.replace("\n", "\r\n")) == parse(text) != []


def long_comparison(checks: int) -> Comparison:
    found = slow()
    text = "a long message " * 20
    rows = tuple(
        Check(f"check_{place}", "performance", "exact", "pass", text, 1, 2, delta=1.0)
        for place in range(checks)
    )
    keys = tuple(KeyChange(f"key_{place}", "was " * 10, "now " * 10) for place in range(checks))
    return replace(found, checks=(*found.checks, *rows), config_changes=keys)


def test_a_long_report_is_cut_section_by_section_and_says_what_is_left_out() -> None:
    text = section(long_comparison(800), source(), 30_000)
    assert len(text) <= 30_000
    assert "Regression: median step time" in text
    assert "Failed checks" in text
    assert "Left out for length: " in text
    assert "checks that passed" in text


def test_a_report_that_fits_is_left_whole() -> None:
    assert "Left out" not in section(slow(), source(), LIMIT)


def test_a_comment_of_many_long_canaries_keeps_every_first_line() -> None:
    answers = {f"canary-{place}": long_comparison(300) for place in range(12)}
    text = body(answers, source())
    assert len(text) <= LIMIT
    assert text.count("**❌ Regression: ") == 12
    assert len(parse(text)) == 12


@pytest.mark.spread(1)
@pytest.mark.parametrize("count", [8, 90])
def test_first_lines_without_end_cannot_keep_a_comment_from_being_written(count: int) -> None:
    long = replace(comparison("regression"), first_line="&" * 10_000)
    text = body({f"canary-{place}": long for place in range(count)}, source())
    assert len(text) <= LIMIT
    assert len(parse(text)) == count


def test_a_comment_that_grows_over_the_limit_by_merging_is_cut() -> None:
    text = ""
    for place in range(4):
        new = sections_of([Answer(f"canary-{place}", long_comparison(800))], source())
        text = comment_of(merged([text], new) or ())
    assert len(text) <= LIMIT
    assert text.count("Regression: median step time") >= 4


def test_no_text_can_write_the_comments_own_marks() -> None:
    text = body({"sft": comparison()}, source())
    forged = f"<!-- rlhf-canary:end --><!-- rlhf-canary:section x bb 1.1 pass -->{text}"
    hostile = comparison("regression", forged)
    own = comment_of(sections_of([Answer("sft", hostile)], source()))
    assert [one.verdict for one in parse(own)] == ["regression"]


STATES = [
    ("pass", False, "success"),
    ("regression", False, "failure"),
    ("changed", False, "failure"),
    ("inconclusive", False, "success"),
    ("inconclusive", True, "failure"),
    ("no-baseline", False, "success"),
    ("error", False, "error"),
]


@pytest.mark.parametrize(("verdict", "strict", "state"), STATES)
def test_every_verdict_has_its_state(verdict: str, strict: bool, state: str) -> None:
    assert status_of((Answer("sft", comparison(verdict)),), strict).state == state


def test_an_accepted_change_is_a_success() -> None:
    accepted = replace(comparison("changed"), accepted="label by someone")
    assert status_of((Answer("sft", accepted),)).state == "success"


def test_a_change_that_nobody_accepted_says_so_first_however_long_it_is() -> None:
    answer = Answer("sft", comparison("changed", "Changed: " + "batches differ " * 20))
    alone, one_of_two = status_of((answer,)), status_of((answer, Answer("dpo", comparison())))
    assert alone.description.startswith("Needs acceptance: batches differ")
    assert one_of_two.description.startswith("sft: Needs acceptance: batches differ")
    assert len(one_of_two.description) <= LONGEST_DESCRIPTION


def test_the_worst_canary_decides_and_is_named() -> None:
    answers = (
        Answer("sft", comparison()),
        Answer("dpo", comparison("regression", "Regression: slow.")),
        Answer("grpo", replace(comparison("changed"), accepted="yes")),
    )
    assert worst(answers, strict=False).canary == "dpo"
    assert status_of(answers).description == "dpo: Regression: slow."


def test_a_blocking_answer_comes_before_a_worse_sounding_one_that_does_not_block() -> None:
    answers = (
        Answer("a", replace(comparison("changed"), accepted="yes")),
        Answer("b", comparison("inconclusive")),
    )
    assert worst(answers, strict=True).canary == "b"


def test_a_description_is_cut_at_a_word_within_githubs_limit() -> None:
    text = shortened("word " * 60)
    assert len(text) <= LONGEST_DESCRIPTION
    assert text.endswith("word…")
    assert len(shortened("x" * 500)) == LONGEST_DESCRIPTION
    assert shortened("x " * 200 + "(96%).").endswith("x…")
    assert shortened("two\nlines\x1b[2J") == "two lines [2J"


def test_a_status_that_is_too_long_keeps_the_remedy_of_an_error() -> None:
    path = "a/very/long/path/" * 12
    found = Comparison("error", f"Error: the file {path} is not there (name another file).")
    said = status_of((Answer("sft", found),)).description
    assert said.startswith("Error: the file a/very/long")
    assert said.endswith("… (name another file).")
    assert len(said) == LONGEST_DESCRIPTION


def test_an_error_without_runs_has_no_table_of_runs() -> None:
    found = Comparison("error", "Error: the training job left no record.")
    assert "no runs" not in render(found, "text")
    for text in (section(found, Source("a" * 40), LIMIT), render(found, "markdown")):
        assert "left no record" in text
        assert "no runs" not in text
        assert "erdict" not in text
        assert "ummary" not in text
    refused = replace(found, current=Side(("head",), "sft"))
    text = section(refused, Source("a" * 40), LIMIT)
    assert "no runs" not in text
    assert "| runs | not compared |" in text


def lines_before_the_fold(text: str) -> list[str]:
    return [line for line in text.split("<details>")[0].splitlines() if line]


def test_a_pass_is_three_lines_and_folds_everything_else() -> None:
    found = compare_to_baseline(records([0.1] * 3, first=50), history(), history=True)
    text = section(found, Source("a" * 40, "https://github.com/o/r/actions/runs/1"), LIMIT)
    first, figures = lines_before_the_fold(text)
    assert first.startswith("**✅ Pass: learns the same")
    assert figures.startswith("- **Figures**: step time, median 100.0 ms; tokens per second 2,779")
    assert Answer("sft", found, "configs/sft.yaml").place is None
    (commit,) = text.rsplit("</details>", 1)[1].split("\n\n")[1:]
    assert commit.startswith("<sub>commit `aaaaaaaaa`")


def test_a_failure_says_what_failed_why_where_and_what_to_do_before_the_fold() -> None:
    before, after = record(1), record(2)
    before.config["learning_rate"], after.config["learning_rate"] = 1e-4, 3e-4
    after.exact["trajectory"]["learning_rates"] = [3e-4] * 3
    diff = "+++ b/canary.yaml\n@@ -4 +4 @@\n-learning_rate: 1e-4\n+learning_rate: 3e-4\n"
    found = compare_to_baseline(after, before, source=parse_diff(diff))
    first, *rest = lines_before_the_fold(section(found, Source("a" * 40), LIMIT))
    assert first.startswith("**🟠 Changed: ")
    assert len(rest) <= 6
    assert rest[0].startswith("`learning_rate`: `0.0001` → `0.0003`<br>Intended? ")
    assert sum(line.startswith("- **Likely cause**: ") for line in rest) == 1
    assert Answer("sft", found, "configs/sft.yaml").place == ("canary.yaml", 4)


def test_tables_fit_the_width_of_a_comment() -> None:
    found = compare_to_baseline(records([0.15] * 3, first=50), history(), history=True)
    text = section(found, Source("a" * 40), LIMIT)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    shown = [line.replace("\\", "") for line in rows]
    assert max(len(row) - 2 * row.count("|") for row in shown) <= 90


def test_more_than_three_canaries_get_a_table_and_fold_what_passed() -> None:
    names = ["a", "b", "c", "d"]
    three = body({name: comparison() for name in names[:3]}, source())
    assert "| canary |" not in three
    text = body({name: comparison() for name in names[:3]} | {"d": slow()}, source())
    assert text.splitlines()[:3] == [
        "**❌ 4 canaries: 1 regression, 3 pass**",
        "",
        "| canary | result | answer |",
    ]
    assert text.index("| `d` | ❌") < text.index("| `a` | ✅&nbsp;pass | nothing got worse. |")
    assert text.index("#### `d`") < text.index("<details><summary>3 pass</summary>")
    assert [one.name for one in parse(text)] == ["d", "a", "b", "c"]


def test_a_line_of_a_record_cannot_break_the_table() -> None:
    line = "Pass: a | b `c\n| `x` | pass | <!-- --> \\" + "y " * 400
    text = body({name: comparison(line=line) for name in "abcd"}, source())
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == 4
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows), rows[0]
