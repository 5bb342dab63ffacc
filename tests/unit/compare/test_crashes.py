"""A crash on the current side alone: its error first, the user's line, and no effects of it."""

from __future__ import annotations

from canary.baseline.comparability import how_it_ended
from canary.compare.diagnosis.source_changes import parse_diff
from canary.compare.places import places_of_failure
from canary.compare.report import Comparison, Places
from canary.compare.stats import compare_to_baseline
from canary.protocol.failure import split_place
from canary.record.exact import Code
from canary.record.types import RunRecord
from canary.report.comparison_page import page_of
from canary.report.render import render
from tests.unit.comparing import altered, crashed, record

HUNKS = "".join(f"@@ -{n} +{n} @@\n-    a\n+    b\n" for n in (20, 30, 40, 50, 60))
DIFF = f"--- a/train.py\n+++ b/train.py\n{HUNKS}"
CODE: Code = {
    "noted": "lines",
    "files": {"train.py": {"ran": {"setup": "1-80"}, "functions": {"<module>": (1, 100, "m")}}},
}
AT = "RuntimeError: no shape (at sft/sft.py:37 in main, raised at trl/utils.py:1660 in <genexpr>)"


def lost(number: int, reason: str) -> RunRecord:
    """A run that crashed before its first step, so that it recorded neither device nor look."""
    run = crashed(record(number), reason=reason)
    launches = [one.model_copy(update={"steps": 0}) for one in run.launches]
    run = run.model_copy(update={"exact": {}, "launches": launches})
    run = altered(run, "env", "device", to={})
    return altered(run, "stability", "loss_values", to=[])


def crash(reason: str) -> Comparison:
    before = record(1)
    before.exact["code"] = CODE
    failed = [lost(number, reason) for number in (100, 101)]
    return compare_to_baseline(failed, [before], source=parse_diff(DIFF))


def test_a_crash_leads_with_its_error_and_names_the_library_after_the_users_line() -> None:
    found = crash(f"the command exited with code 1 before training: {AT}")
    assert found.first_line == "Regression: RuntimeError: no shape, in the 2 current runs only."
    lines = render(found, "text").splitlines()
    assert lines[1] == (
        "  sft/sft.py:37 in main failed (raised at trl/utils.py:1660 in <genexpr>): "
        "RuntimeError: no shape, before its first step"
    )
    assert "before training" not in render(found, "text")
    long = crash(f"ValueError: {'too many values ' * 20}(at train.py:3)")
    assert len(long.first_line) <= 120
    assert long.first_line.startswith("Regression: ValueError: too many values")


def test_what_a_crash_did_not_record_is_no_place_and_three_places_are_the_most() -> None:
    found = crash(AT)
    assert {one.name for one in found.places.ran} == {"train.py"}
    lines = render(found, "text").splitlines()
    starts = [line.split()[0] for line in (lines[1], lines[2], lines[5])]
    assert starts == ["sft/sft.py:37", "train.py:20", "train.py:30"]
    assert lines[8] == "  and 3 more"


def test_a_crash_with_a_named_error_has_no_unknown_cause() -> None:
    for form in ("text", "markdown"):
        assert "No recorded signal" not in render(crash(AT), form)
    assert "No recorded signal" in render(crash("it broke"), "text")


def test_the_page_of_a_crash_has_the_error_and_no_statistics() -> None:
    page = page_of("sft", crash(AT))
    answers = dict(page.answers)
    assert "RuntimeError: no shape" in page.first_line
    assert "RuntimeError: no shape" in answers["Where?"]
    assert "(raised at trl/utils.py:1660 in <genexpr>)" in answers["Where?"]
    assert not answers.keys() & {"How sure?", "Is it slower?"}
    assert page.stages == ()


def test_the_place_of_a_failure_is_the_last_one_of_its_reason() -> None:
    """The message before it is the user's, and may look like a place."""
    reason = "ValueError: no row (at evil.py:12 in run) of the data (at train.py:22 in load)"
    words, place = split_place(reason)
    assert words == "ValueError: no row (at evil.py:12 in run) of the data"
    assert place is not None
    assert (place["file"], place["line"], place["function"]) == ("train.py", "22", "load")
    assert split_place("killed") == ("killed", None)


def test_a_changed_file_of_the_same_ending_is_not_the_one_that_failed() -> None:
    """`train.py` failed and did not change; `a/train.py` changed and never ran."""
    before = record(1)
    before.exact["code"] = {"noted": "lines", "files": {"train.py": {"ran": {"setup": "1-30"}}}}
    now = crashed(record(2), reason="KeyError: 'x' (at train.py:22 in load)")
    diff = "--- a/a/train.py\n+++ b/a/train.py\n@@ -21 +21 @@\n-    a\n+    b\n"
    found = places_of_failure(now, before, parse_diff(diff), Places())
    assert found.failed is not None
    assert not found.ran
    before.exact["code"] = {"noted": "lines", "files": {}}
    found = places_of_failure(now, before, parse_diff(diff), Places())
    assert [one.name for one in found.ran] == ["a/train.py"], "the command may start in a folder"


def test_the_step_after_which_a_command_left_is_said_once() -> None:
    steps = len(record(1).stability.loss_values)
    now = crashed(record(2), reason=f"after step {steps}, the command exited with code 3")
    now = now.model_copy(update={"launches": []})
    assert how_it_ended(now) == f"the command exited with code 3, after step {steps}"
