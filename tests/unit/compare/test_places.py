"""Places: the changed code that ran, config keys and packages, the likeliest first."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import ValidationError

from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.compare.place_words import only, sentence
from canary.compare.places import changed_places
from canary.compare.report import Difference, KeyChange, Place, Places
from canary.compare.stats import compare_to_baseline
from canary.record.exact import Code, FileCode
from canary.record.types import RunRecord
from canary.report.render import render
from tests.unit.comparing import crashed, record, records

LOSS = Difference("first_loss", "loss", 1.0, 2.0, learned=True)


def run(**files: FileCode) -> RunRecord:
    (record,) = records([0.1])
    code: Code = {"noted": "lines", "files": {f"{name}.py": file for name, file in files.items()}}
    record.exact["code"] = code
    return record


def file(ran: dict[str, str], **functions: tuple[int, int, str]) -> FileCode:
    return {"ran": ran, "functions": {"<module>": (1, 100, "m"), **functions}}


def places(
    before: RunRecord,
    now: RunRecord,
    diff: str = "",
    first: Difference | None = LOSS,
    config: tuple[KeyChange, ...] = (),
) -> Places:
    source = parse_diff(diff) if diff else SourceChanges()
    return changed_places(before, now, source, [first] if first else [], config, ())


TWO_HUNKS = (
    "--- a/train.py\n+++ b/train.py\n@@ -3 +3 @@\n-import os\n+import sys\n"
    "@@ -20 +20 @@\n-    return x\n+    return 2 * x\n@@ -50 +50 @@\n-    never()\n+    ever()\n"
)


def train(digest: str) -> FileCode:
    ran = {"setup": "1-10", "forward": "20", "loss": "21-22"}
    return file(ran, net=(18, 22, digest), idle=(49, 51, digest))


def test_only_changed_lines_that_ran_are_places_and_imports_come_last() -> None:
    before, now = run(train=train("a")), run(train=train("b"))
    now.exact["code"]["files"]["train.py"]["functions"]["<module>"] = (1, 100, "n")
    found = places(before, now, TWO_HUNKS)
    assert [(one.line, one.function, one.phase) for one in found.ran] == [
        (20, "net", "forward"),
        (3, "<module>", "setup"),
    ]
    assert found.idle == 1
    assert sentence(found.ran[0]) == "train.py:20 in net: return x -> return 2 * x"


def test_one_place_is_the_only_one_and_a_comment_is_none() -> None:
    """A hunk around which no code differs changed comments or line breaks."""
    found = places(run(train=train("a")), run(train=train("b")), TWO_HUNKS)
    assert [one.line for one in found.ran] == [20]
    assert only(found) == "the only changed code that ran"


def test_a_deleted_line_is_found_where_the_baseline_ran_it() -> None:
    diff = "--- a/train.py\n+++ b/train.py\n@@ -20 +19,0 @@\n-    optimizer.zero_grad()\n"
    found = places(run(train=train("a")), run(train=train("b")), diff)
    (place,) = found.ran
    assert (place.line, place.phase) == (20, "forward")
    assert sentence(place) == "train.py:20 in net: removed: optimizer.zero_grad()"


def test_places_that_fit_the_first_difference_come_first() -> None:
    before = run(data=file({"data": "5"}, rows=(4, 6, "a")), net=file({"loss": "9"}, f=(8, 9, "a")))
    now = run(data=file({"data": "5"}, rows=(4, 6, "b")), net=file({"loss": "9"}, f=(8, 9, "b")))
    diff = "".join(
        f"--- a/{name}.py\n+++ b/{name}.py\n@@ -{line} +{line} @@\n-    a\n+    b\n"
        for name, line in (("data", 5), ("net", 9))
    )
    batches = Difference("batches", "sha256", "x", "y", learned=True)
    key = (KeyChange("beta", 1, 2),)
    for first, order in (
        (LOSS, ["net.py", "data.py", "beta"]),
        (batches, ["data.py", "beta", "net.py"]),
    ):
        found = places(before, now, diff, first, key)
        assert [one.name for one in found.ran] == order
        assert not only(found)


def test_without_commits_functions_are_held_by_the_hash_of_their_code() -> None:
    before, now = run(train=train("a")), run(train=train("b"))
    found = places(before, now)
    assert [(one.name, one.line, one.function) for one in found.ran] == [
        ("train.py", 18, "net"),
        ("train.py", 49, "idle"),
    ]
    assert sentence(found.ran[0]) == "train.py:18 in net changed"


def test_the_same_code_has_no_place_and_unnoted_code_is_not_known_to_be_equal() -> None:
    same = places(run(train=train("a")), run(train=train("a")))
    assert same.known
    assert not same.ran
    (old,) = records([0.1])
    assert not places(old, run(train=train("a"))).known


def test_lines_that_a_stranger_wrote_are_read_without_harm() -> None:
    odd = file({"forward": "1-99999999999999,x,5-,-3,²"}, f=(1, 3, "a"))
    diff = "--- a/t.py\n+++ b/t.py\n@@ -2 +2 @@\n-a\n+b\n"
    assert places(run(t=odd), run(t=odd | {"functions": {"f": (1, 3, "b")}}), diff).ran
    assert places(run(t={"idle": {"f": (1, 3, "a")}}), run(t={}), diff).not_run


def test_a_template_of_the_commits_is_a_place_and_prose_is_none() -> None:
    diff = "".join(
        f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n"
        for name in ("chat.jinja", "README.md", ".github/workflows/test.yml")
    )
    found = places(run(train=train("a")), run(train=train("a")), diff)
    assert [(one.kind, one.name) for one in found.ran] == [("file", "chat.jinja")]


def test_a_comment_of_a_config_is_no_place() -> None:
    lines = "@@ -1 +1 @@\n-# ten steps\n+# a short canary\n@@ -5 +5 @@\n-lr: 1\n+lr: 2  # more\n"
    found = places(run(), run(), f"--- a/data.yaml\n+++ b/data.yaml\n{lines}")
    assert [(one.kind, one.name, one.line) for one in found.ran] == [("file", "data.yaml", 5)]


def test_what_made_the_model_stands_before_what_a_step_ran_if_the_model_differs() -> None:
    ran = {"setup": "1-10", "forward": "20"}
    before, now = run(train=file(ran)), run(train=file(ran))
    now.exact["code"]["files"]["train.py"]["functions"]["<module>"] = (1, 100, "n")
    diff = (
        "--- a/train.py\n+++ b/train.py\n@@ -5 +5 @@\n-model = net()\n+model = net().half()\n"
        "@@ -20 +20 @@\n-loss = model(x, y)\n+loss = model(y, x)\n"
    )
    model = Difference("model", "dtypes", "float32", "float16", learned=True)
    assert [one.line for one in places(before, now, diff, model).ran] == [5, 20]
    assert [one.line for one in places(before, now, diff, LOSS).ran] == [20, 5]


def test_a_line_that_moved_is_one_place_and_a_lost_block_shows_its_head() -> None:
    before, now = run(train=train("a")), run(train=train("b"))
    moved = (
        "--- a/train.py\n+++ b/train.py\n@@ -20 +19,0 @@\n-    clip()\n@@ -21,0 +21 @@\n"
        "+    clip()\n"
    )
    (place,) = places(before, now, moved).ran
    assert place.is_move
    assert sentence(place) == "train.py:21 in net: moved: clip()"
    lost = (
        "--- a/train.py\n+++ b/train.py\n@@ -20,2 +20 @@\n-    with autocast():\n"
        "-        loss = f(x)\n+    loss = f(x)\n"
    )
    (place,) = places(before, now, lost).ran
    assert not place.is_move
    assert sentence(place) == "train.py:20 in net: removed: with autocast():"


def test_of_a_hunk_over_several_functions_the_line_that_ran_is_the_place() -> None:
    """The hunk begins with a comment and with the end of a function that nothing calls."""
    ran = {"setup": "1-10", "loss": "20-22"}
    before, now = (
        run(train=file(ran, idle=(12, 17, digest), net=(18, 22, digest))) for digest in "ab"
    )
    diff = (
        "--- a/train.py\n+++ b/train.py\n@@ -16,5 +16,5 @@\n-    return 1\n-# old\n-def net(x):\n"
        "-\n-    return x\n+    return 2\n+# new\n+def net(y):\n+\n+    return y\n"
    )
    (place,) = places(before, now, diff).ran
    assert sentence(place) == "train.py:20 in net: return x -> return y"


def test_a_line_that_became_a_comment_is_gone() -> None:
    before, now = run(train=train("a")), run(train=train("b"))
    now.exact["code"]["files"]["train.py"]["ran"] = {"setup": "1-10", "loss": "21-22"}
    diff = "--- a/train.py\n+++ b/train.py\n@@ -20 +20 @@\n-    clip()\n+    # clip()\n"
    (place,) = places(before, now, diff).ran
    assert sentence(place) == "train.py:20 in net: removed: clip()"


def test_other_code_of_a_file_that_the_commits_do_not_name_is_a_place() -> None:
    """Git ignores the file, or it lies in a submodule."""
    before, now = (
        run(train=train("a"), made=file({"loss": "19"}, net=(18, 22, digest))) for digest in "ab"
    )
    new = file({"setup": "3"})
    now.exact["code"]["files"]["new.py"] = new
    found = places(before, now, TWO_HUNKS)
    assert [sentence(one) for one in found.ran] == ["made.py:18 in net changed"]
    assert found.idle == 3


def test_a_script_without_an_ending_is_code() -> None:
    before, now = run(), run()
    for side, digest in ((before, "a"), (now, "b")):
        side.exact["code"]["files"]["train"] = train(digest)
    found = places(before, now, TWO_HUNKS.replace("train.py", "train"))
    assert [(one.kind, one.line) for one in found.ran] == [("code", 20)]


def test_lines_of_a_long_hunk_keep_their_numbers() -> None:
    many = 30_000
    lines = [*(f"-x{i} = 1" for i in range(many)), *(f"+x{i} = 2" for i in range(many))]
    head = f"--- a/train.py\n+++ b/train.py\n@@ -3,{many} +5,{many} @@\n"
    after = "\n@@ -40000 +40002 @@\n-a\n+b\n"
    (change,) = parse_diff(head + "\n".join(lines) + after).files
    assert [(hunk.old_line, hunk.line) for hunk in change.hunks] == [(3, 5), (40000, 40002)]
    assert change.hunks[0].removed[-1] == "x19999 = 1", "the rest is cut"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a/my train.py\t", "my train.py"),
        ('"a/na\\303\\257ve.py"', "naïve.py"),
        ('"a/tr\\nain \\"1\\".py"', 'tr\nain "1".py'),
    ],
)
def test_names_that_git_quotes_are_read(written: str, name: str) -> None:
    new = written.replace("a/", "b/", 1)
    (change,) = parse_diff(f"--- {written}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n").files
    assert (change.path, change.old_path) == (name, name)


def test_a_setting_that_a_command_made_is_a_place_only_if_nothing_else_changed() -> None:
    """The line that names it stands before other lines that ran before the first step."""
    before, now = run(train=train("a")), run(train=train("a"))
    for side in (before, now):
        side.config["command"] = ["python", "train.py"]
    rate = (KeyChange("trainer_args.learning_rate", 1, 2),)
    assert [one.name for one in places(before, now, config=rate).ran] == [rate[0].key]
    now.exact["code"]["files"]["train.py"]["functions"]["<module>"] = (1, 100, "n")
    diff = (
        "--- a/train.py\n+++ b/train.py\n@@ -3 +3 @@\n-name = 1\n+name = 2\n"
        "@@ -5 +5 @@\n-args(lr=1)\n+args(lr=2)\n"
    )
    assert [one.line for one in places(before, now, diff, config=rate).ran] == [5, 3]
    now.config["command"] = ["python", "train.py", "--beta", "2"]
    beta = KeyChange("--beta", None, 2)
    found = places(before, now, diff, config=(*rate, beta)).ran
    assert [one.name for one in found] == ["train.py", "--beta", "train.py"]


WORK = Difference("work", "operators", 100, 150)


@pytest.mark.parametrize("command", [[], ["python", "train.py"]])
def test_a_setting_that_only_code_changed_has_the_line_that_names_it(command: list[str]) -> None:
    """No config has the setting; the training shows it. Without such a line it is a place itself,
    if a difference is to be explained."""
    before, now = run(train=train("a")), run(train=train("a"))
    for side, decay in ((before, 0.0), (now, 0.1)):
        side.config["command"] = command
        side.exact["evidence"] = {
            "settings": {"optimizer.0.weight_decay": decay, "python.threads": decay}
        }
    setting = ["optimizer.0.weight_decay"]
    assert not places(before, now, first=None).ran
    assert [one.name for one in places(before, now, first=WORK).ran] == setting
    key = (KeyChange("beta", 1, 2),)
    assert [one.name for one in places(before, now, first=WORK, config=key).ran] == ["beta"]
    now.exact["code"]["files"]["train.py"]["functions"]["<module>"] = (1, 100, "n")
    diff = (
        "--- a/train.py\n+++ b/train.py\n@@ -3 +3 @@\n-name = 1\n+name = 2\n"
        "@@ -5 +5 @@\n-AdamW(p)\n+AdamW(p, weight_decay=0.1)\n"
    )
    for first in (WORK, LOSS):
        found = places(before, now, diff, first).ran
        assert [(one.name, one.line) for one in found] == [("train.py", 5), ("train.py", 3)]


@pytest.mark.parametrize(
    "code",
    [
        5,
        {"files": []},
        {"files": {"a.py": {"ran": 5}}},
        {"files": {"a.py": {"functions": {"f": [1]}}}},
    ],
)
def test_a_strangers_record_with_other_shapes_of_code_is_refused(code: Any) -> None:
    document = run(train=train("a")).model_dump(mode="json")
    document["exact"]["code"] = code
    with pytest.raises(ValidationError):
        RunRecord.model_validate(document)


@pytest.mark.parametrize(("line", "near"), [(20, 20), (21, 20), (30, 20), (49, 50)])
@pytest.mark.parametrize("runs", [1, 2])
def test_a_crash_has_the_users_line_and_the_changed_place(line: int, near: int, runs: int) -> None:
    error = "ValueError: too many values to unpack, and a rather long explanation"
    reason = f"{error} (at train.py:{line} in collate)"
    failed = [crashed(record(number), reason=reason) for number in (100, 101)[:runs]]
    baseline = [record(number) for number in range(3)]
    found = compare_to_baseline(failed, baseline, source=parse_diff(TWO_HUNKS))
    assert found.verdict == ("regression" if runs == 2 else "error")
    assert len(found.first_line) <= 120 or runs == 1
    assert [one.line for one in found.places.ran] == [near]
    was, now = ("return x", "return 2 * x") if near == 20 else ("never()", "ever()")
    assert render(found, "text").splitlines()[1:6] == [
        f"  train.py:{line} in collate failed: {error}, after step 100",
        f"  train.py:{near} changed",
        f"    was: {was}",
        f"    now: {now}",
        f"  Mend it, or undo the change. The traceback is in log.txt of run {failed[-1].run_id}.",
    ]
    without = compare_to_baseline(failed, baseline)
    assert without.places.failed == found.places.failed
    assert not without.places.ran


def test_a_crash_after_the_look_has_the_changed_code_that_ran() -> None:
    """The change nearest to the failing line did not run."""
    baseline, *failed = (record(number) for number in (1, 100, 101))
    baseline.exact["code"] = run(train=train("a")).exact["code"]
    for one in failed:
        one.exact["code"] = run(train=train("b")).exact["code"]
    ended = [crashed(one, reason="KeyError: 'x' (at train.py:45)") for one in failed]
    found = compare_to_baseline(ended, baseline, source=parse_diff(TWO_HUNKS))
    assert [one.line for one in found.places.ran] == [20]
    lines = render(found, "text").splitlines()
    assert lines[1] == "  train.py:45 failed: KeyError: 'x', after step 100"
    assert lines[2] == "  train.py:20 in net, the only changed code that ran"


IDLE = (
    "--- a/train.py\n+++ b/train.py\n@@ -20 +20 @@\n-    x = 1\n+    x = 2\n"
    "@@ -50 +50 @@\n-    never()\n+    ever()\n@@ -60 +60 @@\n-    One.\n+    Two.\n"
    "@@ -70 +70 @@\n-    # one\n+    # two\n@@ -80 +80 @@\n-    return x\n+    return y\n"
    "--- a/tests/test_train.py\n+++ b/tests/test_train.py\n@@ -1 +1 @@\n-    a\n+    b\n"
)


def with_idle(digest: str) -> FileCode:
    """`net` ran, the last two functions and what `prose` holds did not."""
    found = file({"setup": "1-10", "forward": "20"}, net=(18, 22, "n"))
    idle = {"evaluate": (48, 52, digest), "prose": (58, 72, "p"), "save": (78, 82, digest)}
    return {**found, "idle": idle}


def test_changed_functions_that_did_not_run_are_kept_and_prose_and_unused_files_are_not() -> None:
    found = places(run(train=with_idle("a")), run(train=with_idle("b")), IDLE)
    assert not found.ran
    assert [(one.line, one.function) for one in found.not_run] == [(50, "evaluate"), (80, "save")]
    assert not places(run(train=with_idle("a")), run(train=with_idle("a")), IDLE).not_run


def test_in_a_function_that_ran_only_changed_lines_of_code_did_not_run() -> None:
    before, now = (run(train=file({"forward": "20"}, net=(1, 90, digest))) for digest in "ab")
    found = places(before, now, IDLE.replace("x = ", "#"))
    assert [one.line for one in found.not_run] == [50]


def test_a_look_that_was_the_whole_training_left_nothing_to_run() -> None:
    before, now = (run(train=with_idle(digest)) for digest in "ab")
    for side in (before, now):
        side.config |= {"exact": True, "look_steps": 12, "max_steps": None}
    assert places(before, now, IDLE).steps == 12
    assert len(places(before, now, IDLE).not_run) == 2
    now.exact["steps"] = 7
    assert not places(before, now, IDLE).not_run


def test_where_lines_are_not_noted_functions_that_no_step_called_are_kept() -> None:
    before, now = (run(train=file({"setup": "48-52"}, evaluate=(48, 52, d))) for d in "ab")
    for side in (before, now):
        side.exact["code"]["noted"] = "functions"
    found = places(before, now, IDLE)
    assert [(one.line, one.function) for one in found.not_run] == [(50, "evaluate")]


def test_a_function_that_the_steps_belong_to_is_not_one_that_no_step_called() -> None:
    """Such as `main`, with the loop: on Python 3.11 its other lines count as set-up."""
    before, now = (
        run(train=file({"setup": "48-50", "data": "52"}, main=(48, 52, d))) for d in "ab"
    )
    for side in (before, now):
        side.exact["code"]["noted"] = "functions"
    found = places(before, now, IDLE)
    assert found.ran
    assert not found.not_run


def test_a_long_line_costs_no_time() -> None:
    """A stranger's line may have hundreds of thousands of characters."""
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 300))) * 400
    place = Place(
        "code", "a.py", 1, removed=(f"# {letters}", "x = 1"), added=(f"# {letters[::-1]}",)
    )
    begun = time.monotonic()
    assert sentence(place).startswith("a.py:1: # ")
    assert time.monotonic() - begun < 5


def test_code_that_may_have_run_unseen_makes_no_change_the_only_one() -> None:
    before, now = run(train=train("a")), run(train=train("b"))
    same = "--- a/train.py\n+++ b/train.py\n@@ -20 +20 @@\n-    return x\n+    return 2 * x\n"
    assert only(places(before, now, same)) == "the only changed code"
    config = "--- a/configurator.py\n+++ b/configurator.py\n@@ -1 +1 @@\n-LR = 1\n+LR = 2\n"
    assert only(places(before, now, same + config)) == "the only changed code that was seen to run"
    now.exact["code"]["outside"] = 2
    assert only(places(before, now, same)) == "the only changed code that was seen to run"


def test_a_binary_file_is_a_place_and_prose_is_only_named() -> None:
    before, now = run(train=train("a")), run(train=train("a"))
    bits = "diff --git a/data.npy b/data.npy\nBinary files a/data.npy and b/data.npy differ\n"
    found = places(before, now, bits)
    assert [(one.kind, one.name, one.line) for one in found.ran] == [("file", "data.npy", None)]
    prose = "--- a/prompt.md\n+++ b/prompt.md\n@@ -1 +1 @@\n-a\n+b\n"
    found = places(before, now, prose)
    assert (found.ran, found.unread) == ((), ("prompt.md",))
    weights = prose.replace("prompt.md", "requirements_weights.json")
    assert [one.name for one in places(before, now, weights).ran] == ["requirements_weights.json"]


def test_many_moved_lines_cost_no_time() -> None:
    hunks = "".join(f"@@ -{2 * n} +0,0 @@\n-x{n} = 1\n" for n in range(1, 6000))
    hunks += "".join(f"@@ -0,0 +{20000 + 2 * n} @@\n+x{n} = 1\n" for n in range(1, 6000))
    begun = time.monotonic()
    places(run(train=train("a")), run(train=train("b")), f"--- a/train.py\n+++ b/train.py\n{hunks}")
    assert time.monotonic() - begun < 10
