"""Causes: each earns its place by signals, rivals lower each other, and unknown is an answer."""

from __future__ import annotations

from typing import Any

import pytest

from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.compare.heuristics import (
    Diagnosis,
    RegressionCategory,
    format_suspects_markdown,
)
from canary.compare.stats import compare_to_baseline
from tests.unit.compare.rules.test_update_rules import ADAM
from tests.unit.comparing import altered, record, records, trained
from tests.unit.diagnosing import (
    CASES,
    GRAD_NORMS,
    LOSSES,
    MODE,
    OTHER_LOSS,
    OTHER_ROWS,
    TRAJECTORY,
    Change,
    changed,
    diagnosed,
    every_micro,
    exact,
    later,
    ran_in,
    seen,
    sides,
)


@pytest.mark.parametrize("name", CASES)
def test_the_mechanism_is_named_first(name: str) -> None:
    kind, category, changes = CASES[name]
    found, diagnosis = diagnosed(kind, *changes)
    top = diagnosis.top_suspect
    assert top is not None, found.first_line
    assert top.category == category, diagnosis.summary
    assert top.confidence > 0.5
    assert top.evidence
    assert top.suggested_actions
    assert len(found.first_line) <= 120


@pytest.mark.parametrize("steps", [50, 200])
def test_another_number_of_steps_explains_another_end(steps: int) -> None:
    """All steps that both sides have are equal: a schedule without decay shows nothing there."""
    baseline, current = records([0.1, 0.1, 0.1]), record(100)
    losses = current.stability.loss_values
    losses = [*losses[:steps], *[max(losses)] * (steps - len(losses))]
    other = altered(trained(current, steps), "config", "max_steps", to=steps)
    found = compare_to_baseline(altered(other, "stability", "loss_values", to=losses), baseline)
    assert found.first_difference is not None
    assert found.first_difference.stage == "config"
    top = found.diagnosis.suspects[0]
    assert (top.category, top.description[:27]) == ("optimizer", "Setting changed: max_steps ")


@pytest.mark.parametrize(("kind", "named"), [("sft", True), ("exec", False)])
def test_the_length_of_a_command_is_no_cause_of_what_its_steps_learn(
    kind: str, named: bool
) -> None:
    """A trainer's schedule depends on it; `canary exec` only ends the command there."""
    baseline, current = (altered(record(n), "config", "training_type", to=kind) for n in (1, 10))
    losses = baseline.exact["trajectory"]["losses"]
    later = [*losses[:2], *(1.5 * (loss or 0.0) for loss in losses[2:])]
    current = altered(current, "exact", "trajectory", "losses", to=later)
    current = altered(current, "config", "max_steps", to=50)
    found = compare_to_baseline(current, baseline)
    assert found.verdict == "changed"
    said = [suspect.description for suspect in found.diagnosis.suspects]
    assert any("max_steps" in one for one in said) == named


def test_phases_tell_a_dataloader_from_a_host_with_a_wall_clock_that_lies() -> None:
    """The whole machine is 40% slower, and one phase is longer by more than that."""
    for phase, category in (
        *(("data", "dataloader"), ("other", "host")),
        *(("checkpoint", "io"), ("evaluation", "io")),
    ):
        before, after = sides()
        step = dict.fromkeys(("data", "forward", "backward", "optimizer", "other"), 0.02)
        step["checkpoint"] = step["evaluation"] = 0.01
        for side, seconds in ((before, step), (after, {k: 1.4 * v for k, v in step.items()})):
            side.phases = dict(seconds)
            side.launches[-1].phases_steady = dict(seconds)
        after.phases[phase] += 0.1
        after.launches[-1].phases_steady[phase] += 0.1
        after.launches[-1].median_step_time_s = 1.0
        after.launches[-1].mean_step_time_s = 1.0
        found = compare_to_baseline(after, before)
        top = found.diagnosis.top_suspect
        assert top is not None
        assert top.category == category, found.diagnosis.summary
        assert any(item.kind == "phase" and phase in item.message for item in top.evidence)


def test_nothing_worse_has_no_suspects() -> None:
    found, diagnosis = diagnosed("sft")
    assert found.verdict != "regression"
    assert diagnosis == Diagnosis()
    assert format_suspects_markdown(diagnosis) == "No suspects: nothing got worse.\n"


def test_a_slower_step_without_any_other_sign_is_unknown() -> None:
    before, after = records([0.1] * 5), records([0.3] * 5, 100)
    found = compare_to_baseline(after, before)
    assert found.verdict == "regression"
    top = found.diagnosis.top_suspect
    assert top is not None
    assert top.category is RegressionCategory.UNKNOWN
    assert "Likely cause" not in found.first_line
    assert any("canary profile" in action for action in top.suggested_actions)


def test_the_package_and_the_key_stand_beside_the_mechanism() -> None:
    before, after = sides()
    packages = {**after.env["packages"], "trl": "9.9.9"}
    after = changed(
        after,
        (("env", "packages"), packages),
        (("config", "learning_rate"), 0.123),
        ((*TRAJECTORY, "learning_rates"), [0.123] * len(LOSSES)),
    )
    diff = "+++ b/configs/sft.yaml\n@@ -7,0 +8 @@\n+learning_rate: 0.123\n"
    found = compare_to_baseline(after, before, gates=(), source=parse_diff(diff))
    top = found.diagnosis.top_suspect
    assert top is not None
    assert top.category == "optimizer"
    told = {item.kind: item.message for item in top.evidence}
    assert "packages.trl" in told["environment"]
    assert "9.9.9" in told["environment"]
    assert told["config"].startswith("learning_rate")
    assert "configs/sft.yaml:8: learning_rate: 0.123" in [item.message for item in top.evidence]
    kinds = [item.kind for item in top.evidence]
    order = ["first difference", "environment", "config", "git"]
    assert sorted(kinds, key=order.index) == kinds


def test_a_diff_gives_files_and_the_numbers_of_their_new_lines() -> None:
    text = (
        "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n"
        "@@ -3 +3,2 @@ def f():\n-beta = 0.1\n+beta = 0.2\n+gamma = 1\n"
        "@@ -9,0 +12 @@\n+x = beta_two\n"
        "--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    found = parse_diff(text)
    assert [file.path for file in found.files] == ["train.py", "gone.py"]
    assert found.line_naming("beta") == ("train.py", 3, "beta = 0.2")
    assert found.line_naming("gamma") == ("train.py", 4, "gamma = 1")
    assert found.line_naming("absent") is None
    assert SourceChanges().line_naming("beta") is None


def test_evaluation_mode_that_changes_no_loss_is_no_cause() -> None:
    assert not diagnosed("sft", MODE)[1].suspects


def test_an_evaluation_mode_that_ended_is_told_as_such() -> None:
    before, after = sides()
    now = changed(after, *OTHER_LOSS)
    found = compare_to_baseline(now, changed(before, MODE), gates=())
    top = found.diagnosis.top_suspect
    assert top is not None
    words = "no longer in evaluation mode from step 1 on: dropout is on there"
    assert words in f"{top.description} {top.evidence}"


@pytest.mark.parametrize(
    ("phase", "name", "step", "category"),
    [
        ("", "", 3, "data"),
        ("evaluation", "evaluate", 2, "data"),
        ("other", "log_samples", 3, "data"),
        ("optimizer", "update", 3, "optimizer"),
    ],
)
def test_random_numbers_that_an_evaluation_draws_are_no_optimizer(
    phase: str, name: str, step: int, category: str
) -> None:
    """Dropout draws others in the next step. Without dropout nothing is drawn there."""
    for operators in ({"aten.bernoulli_.float": 4}, {}):
        before, after = sides()
        after.exact["evidence"]["settings"] |= {} if phase else {"trainer.eval_steps": 1}
        for side, digest in ((before, "a"), (after, "b")):
            side.exact["work"]["operators"] |= operators
            if phase:
                ran_in(side, phase, name, digest)
        after = changed(after, *seen("trajectory", losses=later(LOSSES, step)))
        top = compare_to_baseline(after, before, gates=()).diagnosis.suspects[0]
        assert top.category == category if operators else top.category != "data"
        named = f"the sampling of step {step} gets others for the same batch" in top.description
        assert named == (top.category == "data")


NORMS = [1.0 + 0.1 * step for step in range(len(LOSSES))]
GROUPS_NOW = exact()["model"]["trainable_groups"]


def updates(**seen: Any) -> Change:
    """What the look saw of the optimizer's updates."""
    return ("exact", "facts"), {"updates": {"optimizers": [ADAM | seen]}}


NONE_TRAINED = seen("model", trainable_parameters=0, trainable_tensors=0, trainable_groups={})
LEFT_OUT = ("model.norm", "model.embed_tokens")
FEWER = seen(
    "model",
    trainable_tensors=26,
    trainable_parameters=300_000,
    trainable_groups={k: v for k, v in GROUPS_NOW.items() if k not in LEFT_OUT}
    | {"model.layers.*.mlp.up_proj": 2, "base_model.model.lm_head.modules_to_save.default": 1},
)
OTHER_DATA = [*OTHER_ROWS, *every_micro("texts", {"input_ids": ["x", "y"]})]
SAYS: dict[str, tuple[list[Change], str]] = {
    "nothing trained": (NONE_TRAINED, "No parameter is trainable, so nothing is trained"),
    "fewer trained": (
        FEWER,
        "No longer trained: model.embed_tokens, 1 of 3 tensors of model.layers.*.mlp.up_proj, "
        "model.norm. Newly trained: lm_head.modules_to_save (403,104 -> 300,000 trainable",
    ),
    "one group not updated": (
        seen("first_update", tensors_changed=28, tensors_unchanged=["model.norm.weight"]),
        "The first update no longer changes model.norm.weight",
    ),
    "gradients kept": (
        [((*TRAJECTORY, "grad_norms"), later(GRAD_NORMS, 2, 1.9)), updates(left=11, emptied=0)],
        "gradient of step 2 adds to that of the step before: it is not set to zero in between",
    ),
    "evaluation mode": ([MODE, *OTHER_LOSS], "is in evaluation mode from step 1 on"),
    "sizes kept": (OTHER_DATA, "The batches have the same sizes, but other tokens."),
    "another data set": (
        [
            *OTHER_DATA,
            (("exact", "data", "rows"), 180),
            *every_micro("shapes", {"input_ids": [4, 200]}),
            *every_micro("input_tokens", lambda tokens: tokens + 50),
        ],
        "longer: 3,341 -> 4,541 tokens. The dataset is another one too, or is prepared in another "
        "way (rows 2000 -> 180)",
    ),
    "another data file": (
        [*OTHER_DATA, (("config", "dataset_name"), "b.jsonl")],
        "The data comes from another source: dataset_name embedded/tasks -> b.jsonl",
    ),
}


@pytest.mark.parametrize("name", SAYS)
def test_a_cause_says_what_happened(name: str) -> None:
    changes, words = SAYS[name]
    _, diagnosis = diagnosed("sft", *changes)
    assert words in diagnosis.suspects[0].description


@pytest.mark.parametrize(
    ("late", "words"),
    [(0, "clipped before the update."), (11, "clipped before the update: the clip comes after it")],
)
def test_a_clip_that_no_longer_acts_is_said_with_its_place(late: int, words: str) -> None:
    def clipped(applied: list[float]) -> list[Change]:
        norms = {"before": NORMS, "applied": applied}
        return [(("exact", "clipping"), norms), ((*TRAJECTORY, "grad_norms"), NORMS)]

    before, after = sides()
    before = changed(before, *clipped([0.1] * len(NORMS)))
    seen = updates(clips_before=0, clips_after=late, clips_after_acted=late)
    top = compare_to_baseline(changed(after, *clipped(NORMS), seen), before, gates=())
    assert words in top.diagnosis.suspects[0].description


def test_lines_of_a_diff_that_look_like_headers_are_lines() -> None:
    text = (
        "--- a/train.py\n+++ b/train.py\n@@ -7,2 +7,3 @@\n--- old = 1\n-x\u2028y = 2\n"
        "+++ b/evil.py\n+@@ -1 +900 @@\n+beta = 3\n@@ -30,2 +31,0 @@\n-gone = 1\n-gone = 2\n"
    )
    (file,) = parse_diff(text).files
    first, last = file.hunks
    assert first.added == ("++ b/evil.py", "@@ -1 +900 @@", "beta = 3")
    assert (*first.removed, *last.removed) == ("-- old = 1", "x\u2028y = 2", "gone = 1", "gone = 2")
    assert [(hunk.line, hunk.old_line) for hunk in file.hunks] == [(7, 7), (32, 30)]
