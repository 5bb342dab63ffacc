"""Verdict, place and what to do: the first three lines of text, comment and page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canary.compare.checks import change, check_of, metric_check
from canary.compare.paths import Compared
from canary.compare.report import Comparison, Place, Places
from canary.compare.stats import compare_to_baseline
from canary.github.section import section
from canary.github.status import Source
from canary.report.charts.sides import sides_of
from canary.report.comparison_page import comparisons_page
from canary.report.render import render
from tests.unit.comparing import altered, record

SHA = "a" * 40
SOURCE = Source(SHA, "https://github.com/o/r/actions/runs/7/attempts/1", 7, 1, "o/r")
WAS, LINE = "labels[ids == pad] = -100", "labels[ids == eos] = -100"
PLACE = Place("code", "lib/train.py", 88, "collate", "data", (WAS,), (LINE,))
LIMIT = 60_000


def found(*places: Place) -> Comparison:
    current = altered(record(10), "exact", "first_loss", "loss", to=2.3)
    compared = compare_to_baseline(current, record(1))
    return replace(compared, places=Places(places, known=True, by_line=True))


def test_text_begins_with_verdict_place_and_what_to_do() -> None:
    lines = render(found(PLACE), "text").splitlines()
    assert lines[0].startswith("Changed: the loss differs from step 1 on: ")
    assert lines[1] == "  lib/train.py:88 in collate, the only changed code"
    assert lines[2:4] == [f"    was: {WAS}", f"    now: {LINE}"]
    assert lines[4].startswith("  Intended? ")
    assert lines[5] == ""


def test_the_only_place_outside_of_a_function_is_a_sentence_too() -> None:
    line = render(found(replace(PLACE, function="", removed=())), "text").splitlines()[1]
    assert line == f"  lib/train.py:88 is the only changed code: added: {LINE}"


def test_three_places_are_shown_and_the_others_counted() -> None:
    places = [replace(PLACE, line=line) for line in range(1, 6)]
    lines = render(found(*places), "text").splitlines()
    assert [line.split()[0] for line in lines[1:10:3]] == [f"lib/train.py:{n}" for n in (1, 2, 3)]
    assert lines[10] == "  and 2 more"


LONG = f"train({'a, ' * 30}"
SHORT = "train(a, a, a, a, a,… a, a, a, a, a, a, "


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("", LINE, f"added `{LINE}`"),
        (LINE, "", f"removed `{LINE}`"),
        (LINE, LINE, f"moved `{LINE}`"),
        (f"{WAS}\nkept()", f"{LINE}\nkept()", f"`{WAS}` → `{LINE}`"),
        (f"{LONG}b, c=1)", f"{LONG}b)", f"`{SHORT}b, c=1)` → `{SHORT}b)`"),
        (f"a{LONG}", f"b{LONG}", f"`{f'a{LONG}'[:79]}…` → `{f'b{LONG}'[:79]}…`"),
    ],
)
def test_the_old_line_and_the_new_one_are_shown_and_cut_where_they_are_equal(
    was: str, now: str, words: str
) -> None:
    place = replace(PLACE, removed=tuple(was.splitlines()), added=tuple(now.splitlines()))
    assert f", the only changed code: {words}<br>" in second_line(render(found(place), "markdown"))


REFACTORED = replace(
    PLACE,
    removed=(
        "    losses = [one.item() for one in b]",
        "    model.train()",
        "    return sum(losses)",
    ),
    added=("    for one in b:", "        total += one.item()", *(f"    {n}()" for n in "abcd")),
)


def test_a_hunk_of_several_lines_is_shown_whole_or_its_rest_is_counted() -> None:
    lines = render(found(REFACTORED), "text").splitlines()
    assert lines[1] == "  lib/train.py:88 in collate, the only changed code"
    assert lines[2:10] == [
        "    was: losses = [one.item() for one in b]",
        "         model.train()",
        "         return sum(losses)",
        "    now: for one in b:",
        "             total += one.item()",
        "         a()",
        "         b()",
        "         (+2 lines)",
    ]
    was = "was `losses = [one.item() for one in b]`<br>`model.train()`<br>`return sum(losses)`"
    now = "now `for one in b:`<br>`total += one.item()`<br>`a()`<br>`b()` (+2 lines)<br>Intended?"
    shown = second_line(render(found(REFACTORED), "markdown"))
    assert f", the only changed code:<br>{was}<br>{now}" in shown


def test_added_lines_are_shown_too_and_long_pairs_are_cut_where_they_are_equal() -> None:
    added = replace(PLACE, removed=(), added=("  if a:", "    b()"))
    lines = render(found(added), "text").splitlines()
    assert lines[2:4] == ["    added: if a:", "             b()"]
    pairs = replace(PLACE, removed=(f"{LONG}b, c=1)", "x = 1"), added=(f"{LONG}b)", "x = 2"))
    lines = render(found(pairs), "text").splitlines()
    assert lines[2:6] == [
        f"    was: {SHORT}b, c=1)",
        "         x = 1",
        f"    now: {SHORT}b)",
        "         x = 2",
    ]


def second_line(shown: str) -> str:
    return shown.splitlines()[2]


def test_a_comment_links_the_line_of_the_commit_and_another_summary_names_it() -> None:
    link = f"https://github.com/o/r/blob/{SHA}/lib/train.py#L88"
    rest = f" in collate, the only changed code: `{WAS}` → `{LINE}`<br>Intended?"
    shown = section(found(PLACE), SOURCE, LIMIT)
    assert second_line(shown).startswith(f"[`lib/train.py:88`]({link}){rest}")
    for plain in (section(found(PLACE), Source(SHA), LIMIT), render(found(PLACE), "markdown")):
        assert second_line(plain).startswith(f"`lib/train.py:88`{rest}")


@pytest.mark.parametrize(
    "path", ["../x.py", "/x.py", "a/../../x.py", "x.py)[y](z", "x y.py", "x.py?a=b", "x\n.py"]
)
def test_a_hostile_path_gets_no_link(path: str) -> None:
    assert SOURCE.link(path, 1) == ""
    assert "/blob/" not in section(found(replace(PLACE, name=path)), SOURCE, LIMIT)


def test_the_page_shows_place_changed_lines_and_what_to_do() -> None:
    sides = sides_of(Compared(found(PLACE), (record(10),), (record(1),)))
    page = comparisons_page([("sft", sides)])
    for words in ("lib/train.py:88 in collate", f"+{LINE}", f"-{WAS}", "What to do?", "Intended?"):
        assert words in page


def test_a_comment_names_the_label_and_any_other_answer_the_option() -> None:
    """In a job's summary there is no label, and nobody can give an option."""
    option = (
        "Intended? Pass --accept REASON; in CI, merge despite the failed job. Otherwise undo it."
    )
    for form in ("text", "markdown"):
        assert render(found(PLACE), form).count(option) == 1
        assert "Intended?" not in render(replace(found(PLACE), accepted="wanted"), form)
    shown = section(replace(found(PLACE), label="ok: by me"), SOURCE, LIMIT)
    words = (
        "Intended? Someone with write permission can set the label ok: by me. Otherwise undo it."
    )
    assert second_line(shown).endswith(f"<br>{words}")
    assert "--accept" not in shown


def test_a_comment_lists_failed_checks_in_plain_words_and_figures_only_of_quantities() -> None:
    checks = (
        check_of("first_loss", "changed", "other losses"),
        check_of("batches", "changed", "other batches", **change(96, 0)),
        check_of("trajectory", "changed", "other losses"),
        check_of("labels_contain_eos", "fail", "0 EOS"),
        check_of("step_time_median", "fail", "slower", **change(1.0, 1.2)),
        metric_check("metrics.acc.mean", "acc", "fail", "less", **change(1.0, 0.5)),
    )
    shown = section(replace(found(PLACE), verdict="regression", checks=checks), SOURCE, LIMIT)
    (line,) = (line for line in shown.splitlines() if line.startswith("- **Also failed or changed"))
    assert line == (
        "- **Also failed or changed**: median step time +20.0%, the gate on acc.mean -50.0%, "
        "the loss of step 1, the batches that enter each step, the losses of the first steps"
    )
    undecided = tuple(replace(one, status="inconclusive") for one in checks[:2])
    shown = section(replace(found(PLACE), checks=undecided), SOURCE, LIMIT)
    assert "- **Undecided**: the loss of step 1, the batches that enter each step\n" in shown


FIRST = "lib/train.py:1, lib/train.py:2"


def idle(count: int, steps: int = 12) -> Comparison:
    not_run = tuple(replace(PLACE, line=line) for line in range(1, count + 1))
    return replace(
        compare_to_baseline(record(10), record(1)),
        places=Places(not_run=not_run, steps=steps, by_line=True),
    )


@pytest.mark.parametrize(
    ("compared", "names", "where", "them"),
    [
        (idle(1), "lib/train.py:1", "the 12 compared steps", "it"),
        (idle(2, 0), "lib/train.py:1 and lib/train.py:2", "the look", "them"),
        (idle(5), f"{FIRST}, lib/train.py:3 and 2 more", "the 12 compared steps", "them"),
    ],
)
def test_changed_code_that_did_not_run_is_named_everywhere(
    compared: Comparison, names: str, where: str, them: str
) -> None:
    words = f"{names} changed, and did not run in {where}: raise look_steps to compare {them}"
    compared = replace(compared, verdict="pass")
    assert render(compared, "text").splitlines()[1] == f"  {words}"
    plain = words.replace("_", "\\_")
    assert second_line(section(compared, SOURCE, LIMIT)) in (words, plain)
    page = comparisons_page([("sft", sides_of(Compared(compared, (record(10),), (record(1),))))])
    assert words in page


def test_a_difference_with_a_place_names_only_that() -> None:
    shown = replace(
        found(PLACE), places=Places((PLACE,), 1, by_line=True, not_run=(PLACE,), steps=12)
    )
    assert "did not run" not in render(shown, "text")
    nowhere = replace(shown, places=Places((), 1, by_line=True, not_run=(PLACE,), steps=12))
    assert "did not run" in render(nowhere, "text").splitlines()[1]


def test_where_lines_are_not_noted_no_step_called_a_function() -> None:
    shown = replace(idle(1), verdict="pass")
    shown = replace(shown, places=replace(shown.places, by_line=False))
    line = render(shown, "text").splitlines()[1]
    assert line == (
        "  lib/train.py:1 changed, and the 12 compared steps did not call it: raise look_steps if "
        "it runs only later, not at the start"
    )
