"""The exact lane: each stage differing alone is named, and judged by what else differs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.compare.exact.lane import learned_differences
from canary.compare.exact.stages import LEARNED_STAGES as ALL_STAGES
from canary.compare.exact.tolerances import TOLERANCES, Tolerance
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds
from canary.compare.verdict import finding
from canary.record.types import RunRecord
from tests.unit.comparing import altered, example, history, plain, record, statuses

BASELINE = history(0.005, 5)
CURRENT = record(100)
Path = tuple[str | int, ...]
OTHER = "f" * 64
LEARNED_STAGES = [stage for stage in ALL_STAGES if stage != "rollout"]
"""Of a training that samples nothing; see test_ppo_compared for the other."""

LEARNED: list[tuple[str, Path, Any]] = [
    ("first_loss", ("exact", "first_loss", "loss"), 2.3),
    ("first_loss", ("exact", "first_loss", "micro_losses", 1), 0.6),
    ("first_gradient", ("exact", "first_gradient", "total"), 1.9),
    ("first_gradient", ("exact", "first_gradient", "groups", "model.norm"), 0.03),
    ("first_gradient", ("exact", "first_gradient", "groups", "model.new"), 0.5),
    ("first_gradient", ("exact", "first_gradient", "tensors_without_gradient"), ["a", "b"]),
    ("first_update", ("exact", "trajectory", "learning_rates", 0), 0.001),
    ("first_update", ("exact", "first_update", "delta_norm"), 0.4),
    ("first_update", ("exact", "first_update", "tensors_changed"), 28),
    ("trajectory", ("exact", "trajectory", "losses", 5), 3.0),
    ("trajectory", ("exact", "trajectory", "grad_norms", 5), 3.0),
    ("trajectory", ("exact", "trajectory", "rl", "entropy", 5), 3.0),
    ("trajectory", ("stability", "loss_values", 60), 3.0),
]
INPUTS: list[tuple[str, Path, Any]] = [
    ("data", ("exact", "data", "dataset_sha256"), OTHER),
    ("data", ("exact", "data", "tokenizer", "chat_template_sha256"), OTHER),
    ("data", ("exact", "data", "tokenizer", "special_tokens", "eos_token", "id"), 3),
    ("batches", ("exact", "batches", 0, 1, "sha256"), OTHER),
    ("model", ("exact", "model", "parameters_sha256"), OTHER),
    ("model", ("exact", "model", "trainable_tensors"), 28),
    ("model", ("exact", "model", "dtypes"), {"torch.bfloat16": 29}),
]
DONE, CALLS = plain(CURRENT)["work"], plain(CURRENT)["calls"]["tokenizer_calls"]
MANY = DONE["operator_total"]
WORK: list[tuple[str, str, Path, float]] = [
    ("work", "operators", ("exact", "work", "operator_total"), 1.3 * MANY),
    ("work", "flops", ("exact", "work", "flops"), 1.3 * DONE["flops"]),
    ("work", "tokens_fed", ("exact", "work", "tokens_fed"), 1.2 * DONE["tokens_fed"]),
    ("work", "host_reads", ("exact", "work", "host_reads"), DONE["host_reads"] + 2),
    ("work", "collectives", ("exact", "work", "collectives"), 1),
    ("work", "recompiles", ("exact", "work", "recompiles"), 1),
    (
        "calls",
        "tokenizer_calls",
        ("exact", "calls", "tokenizer_calls"),
        1.2 * CALLS,
    ),
    ("calls", "tokenizer_calls", ("io", "tokenizer_calls"), 100),
    ("calls", "files_written", ("exact", "calls", "files_opened"), 11),
    ("calls", "bytes_written", ("exact", "calls", "bytes_written"), 3 << 20),
    ("calls", "dataset_maps", ("exact", "calls", "dataset_maps_unhashable"), 1),
]


def compared(current: RunRecord, baseline: list[RunRecord] | None = None) -> Comparison:
    return compare_to_baseline(current, BASELINE if baseline is None else baseline)


def with_config(whole: RunRecord, key: str = "learning_rate", value: Any = 0.001) -> RunRecord:
    return altered(whole, "config", key, to=value)


def test_equal_runs_differ_nowhere() -> None:
    found = compared(CURRENT)
    assert found.verdict == "pass"
    assert found.first_difference is None
    assert found.differences == ()
    learned = [check for check in found.checks if check.name in LEARNED_STAGES]
    assert [check.name for check in learned] == LEARNED_STAGES
    assert all(check.delta == 0 for check in learned)


@pytest.mark.parametrize(("stage", "path", "value"), LEARNED)
def test_whatever_is_learned_otherwise_is_changed(stage: str, path: Path, value: Any) -> None:
    found = compared(altered(CURRENT, *path, to=value))
    assert found.first_difference is not None
    assert found.first_difference.stage == stage
    assert found.check(stage).status == "changed"
    assert [name for name in LEARNED_STAGES if statuses(found)[name] != "pass"] == [stage]
    assert found.verdict == "changed"
    assert found.first_line == f"Changed: {finding(found.first_difference)}."


@pytest.mark.parametrize("where", ["config", "environment"])
def test_a_changed_config_or_package_alters_neither_the_verdict_nor_the_finding(
    where: str,
) -> None:
    moved = altered(CURRENT, "exact", "first_loss", "loss", to=2.3)
    current = (
        with_config(moved)
        if where == "config"
        else altered(moved, "env", "packages", "trl", to="1.17.0")
    )
    found, alone = compared(current), compared(moved)
    assert [one.stage for one in found.differences[:2]] == [where, "first_loss"]
    assert (found.verdict, found.first_line) == (alone.verdict, alone.first_line)


@pytest.mark.parametrize(("stage", "path", "value"), INPUTS)
def test_inputs_that_change_nothing_learned_warn(stage: str, path: Path, value: Any) -> None:
    found = compared(altered(CURRENT, *path, to=value))
    assert found.first_difference is not None
    assert found.first_difference.stage == stage
    assert found.check(stage).status == "warn"
    assert "loss, gradient and update are equal" in found.check(stage).message
    assert found.verdict == "pass"


@pytest.mark.parametrize(("stage", "path", "value"), INPUTS[::3])
def test_inputs_that_change_what_is_learned_come_first(stage: str, path: Path, value: Any) -> None:
    current = altered(CURRENT, "exact", "first_loss", "loss", to=2.3)
    found = compared(altered(current, *path, to=value))
    assert found.first_difference is not None
    assert found.first_difference.stage == stage
    assert found.check(stage).status == found.check("first_loss").status == "changed"


def test_the_earliest_step_comes_first_and_within_it_the_stage() -> None:
    current = altered(CURRENT, "exact", "batches", 1, 0, "sha256", to=OTHER)
    current = altered(current, "exact", "trajectory", "losses", 1, to=9.0)
    current = altered(current, "exact", "work", "flops", to=9 * DONE["flops"])

    def stages(run: RunRecord) -> list[str]:
        found = compared(run)
        failed = [check.name for check in found.failed_checks]
        assert failed[:2] == [d.stage for d in found.differences[:2]], "the checks say the same"
        assert found.diagnosis.top_suspect is not None
        return [*(d.stage for d in found.differences), found.diagnosis.top_suspect.category]

    assert stages(current) == ["batches", "trajectory", "work", "data"]
    sooner = altered(current, "exact", "first_loss", "loss", to=2.3)
    assert stages(sooner) == ["first_loss", "batches", "trajectory", "work", "objective"]
    rate = altered(current, "exact", "trajectory", "learning_rates", 5, to=0.9)
    assert stages(rate)[:3] == ["batches", "trajectory", "first_update"]


@pytest.mark.parametrize(("stage", "check", "path", "value"), WORK)
def test_more_work_is_judged_by_its_size_whatever_else_changed(
    stage: str, check: str, path: Path, value: float
) -> None:
    current = altered(CURRENT, "config", "thresholds", "max_host_reads_increase", to=1)
    found = compared(with_config(altered(current, *path, to=value)))
    assert found.check(check).status == "fail"
    assert found.verdict == "regression"
    assert found.differences[1].stage == stage
    assert found.differences[1].signal == check


def test_reads_of_values_only_warn_on_a_cpu_whose_config_sets_no_limit() -> None:
    found = compared(altered(CURRENT, "exact", "work", "host_reads", to=DONE["host_reads"] + 2))
    check = found.check("host_reads")
    assert (check.status, found.verdict) == ("warn", "pass")
    assert check.message.endswith("; on a CPU, no read waits for a device)")


def test_calls_where_the_baseline_has_none_obey_their_threshold() -> None:
    assert BASELINE[-1].io["tokenizer_calls"] == 0
    steps = len(CURRENT.stability.loss_values)
    current = altered(CURRENT, "io", "tokenizer_calls", to=2 * steps)
    found = compared(current).check("tokenizer_calls")
    assert (found.status, found.threshold) == ("fail", 10.0)
    for limit, status in ((190.0, "fail"), (210.0, "warn")):
        thresholds = Thresholds(max_tokenizer_calls_increase_pct=limit)
        found = compare_to_baseline(current, BASELINE, thresholds).check("tokenizer_calls")
        assert found.status == status, "a percentage of one call per step"


def test_rows_prepared_otherwise_are_accepted_with_the_change_of_rows() -> None:
    current = altered(CURRENT, "exact", "first_loss", "loss", to=2.3)
    current = altered(current, "exact", "data", "dataset_sha256", to=OTHER)
    current = altered(current, "io", "tokenizer_calls", to=900)
    found = compared(current)
    assert found.check("tokenizer_calls").status == "changed"
    assert found.verdict == "changed"


def test_work_that_follows_from_longer_rows_is_told_and_not_judged() -> None:
    current = altered(CURRENT, "exact", "batches", 2, 0, "input_tokens", to=1)
    current = altered(current, "exact", "work", "operator_total", to=1.3 * MANY)
    found = compared(altered(current, "exact", "work", "flops", to=9e9))
    assert found.check("flops").status == "skip"
    assert " -> 9 G, but step 3 trains on other data: " in found.check("flops").message
    assert found.check("flops").message.endswith(" tokens")
    assert found.check("operators").status == "fail", "it has as many rows"


def test_work_on_other_rows_is_told_and_not_judged() -> None:
    current = CURRENT.model_copy(deep=True)
    current.exact["batches"][2] *= 2
    found = compared(altered(current, "exact", "work", "operator_total", to=2 * MANY))
    assert found.check("operators").status == "skip"
    assert "other data: 8 -> 16 rows, " in found.check("operators").message
    assert f"{MANY:,} -> {2 * MANY:,}, but step 3" in found.check("operators").message


def test_a_config_that_changes_nothing_learned_is_shown_and_passes() -> None:
    found = compared(with_config(CURRENT, "num_workers", 2))
    assert found.verdict == "pass"
    assert found.first_difference is not None
    assert found.first_difference.sentence() == "config: num_workers 0 -> 2"
    assert [change.key for change in found.config_changes] == ["num_workers"]


TOLERANT: list[tuple[str, Path, str]] = [
    ("first_loss", ("exact", "first_loss", "loss"), "first_loss"),
    ("first_gradient", ("exact", "first_gradient", "total"), "gradient"),
    ("first_gradient", ("exact", "first_gradient", "groups", "model.embed_tokens"), "gradient"),
    ("first_update", ("exact", "first_update", "delta_norm"), "update"),
    ("trajectory", ("exact", "trajectory", "losses", 4), "trajectory"),
]


def value_at(whole: RunRecord, path: Path) -> float:
    found: Any = whole.exact
    for place in path[1:]:
        found = found[place]
    return float(found)


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_each_dtype_has_its_own_tolerance(dtype: str) -> None:
    baseline = [with_config(run, "dtype", dtype) for run in BASELINE]
    current = with_config(CURRENT, "dtype", dtype)
    for stage, path, name in TOLERANT if dtype == "float32" else TOLERANT[:1]:
        tolerance = float(getattr(TOLERANCES[dtype], name))
        was = value_at(current, path)
        for share, status in ((0.9, "pass"), (1.1, "changed")):
            moved = altered(current, *path, to=was / (1 - share * tolerance))
            assert compared(moved, baseline).check(stage).status == status, (stage, share)


@pytest.mark.parametrize(
    ("path", "value", "device", "status"),
    [
        ((), None, "cpu", "changed"),
        ((), None, "cuda", "pass"),
        (("first_gradient", "total"), 1.9001, "cpu", "pass"),
        (("batches", 3, 0, "sha256"), OTHER, "cpu", "pass"),
    ],
)
def test_what_differs_after_an_equal_step_1_is_no_rounding(
    path: Path, value: Any, device: str, status: str
) -> None:
    """A lost zero_grad moved norms by 6% at step 2, within the rounding of bfloat16."""

    def prepared(whole: RunRecord) -> RunRecord:
        whole = altered(with_config(whole, "dtype", "bfloat16"), "env", "device", "type", to=device)
        whole = altered(whole, "exact", "first_gradient", "total", to=1.9)
        return altered(whole, "exact", "first_update", "after_sha256", to=OTHER)

    norms = ("exact", "trajectory", "grad_norms", 1)
    current = prepared(altered(CURRENT, *norms, to=1.06 * value_at(CURRENT, norms)))
    current = altered(current, "exact", *path, to=value) if path else current
    found = compared(current, [prepared(run) for run in BASELINE])
    assert found.check("trajectory").status == status


VANISHED = [("grpo", 1e-7, "same"), ("grpo", 0.01, "differs"), ("sft", 1e-7, "differs")]


@pytest.mark.parametrize(("key", "status"), [("load_in_4bit", "pass"), ("use_peft", "changed")])
def test_adapters_over_packed_weights_may_move_further(key: str, status: str) -> None:
    """5.4e-6 is what another attention kernel did to one; it is no arithmetic of float32."""
    path = ("exact", "trajectory", "losses", 4)
    baseline = [with_config(run, key, True) for run in BASELINE]
    current = with_config(CURRENT, key, True)
    moved = altered(current, *path, to=value_at(current, path) * (1 + 5.4e-6))
    assert compared(moved, baseline).check("trajectory").status == status


@pytest.mark.parametrize(("kind", "norm", "status"), VANISHED)
def test_a_rollouts_gradient_of_nothing_but_rounding_has_no_scale_of_its_own(
    kind: str, norm: float, status: str
) -> None:
    path = ("exact", "trajectory", "grad_norms", 4)
    baseline = altered(example(kind), *path, to=norm)
    found = learned_differences(baseline, altered(baseline, *path, to=0.0))
    signals = [difference.signal for difference in found]
    assert (signals == ["grad_norm"]) is (status == "differs"), signals


def test_the_trajectorys_tolerance_grows_with_the_square_of_the_step() -> None:
    tolerance = Tolerance(1e-7, 1e-5, 1e-6, 1e-6, 1e-5)
    assert tolerance.at_step(1) == tolerance.at_step(10) == 1e-6
    assert tolerance.at_step(20) == pytest.approx(4e-6)
    assert tolerance.at_step(100) == pytest.approx(1e-4)


def test_losses_of_the_measured_launch_count_only_where_they_repeat() -> None:
    moved = altered(CURRENT, "stability", "loss_values", 60, to=1.001)
    assert compared(moved).check("trajectory").status == "changed"

    def on_device(whole: RunRecord) -> RunRecord:
        return altered(whole, "env", "device", to={"type": "cuda", "name": "x"})

    found = compared(on_device(moved), [on_device(run) for run in BASELINE])
    assert found.check("trajectory").status == "pass"


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_no_number_any_more_differs(value: Any) -> None:
    found = compared(altered(CURRENT, "exact", "first_loss", "loss", to=value))
    check = found.check("first_loss")
    assert check.status == "changed"
    assert check.delta is not None
    assert math.isfinite(check.delta)


def test_runs_that_begin_at_other_steps_are_not_compared_and_nothing_passes() -> None:
    """A script that goes on from its newest checkpoint, in a folder that holds one."""
    resumed = CURRENT.model_copy(update={"first_step": 25})
    found = compared(resumed)
    assert {found.check(stage).status for stage in LEARNED_STAGES} == {"skip"}
    said = "the baseline starts at step 1, the current side starts at step 25: one of them resumed"
    assert found.check("batches").message.startswith(said)
    assert said in found.first_line
    assert (found.verdict, found.passed) == ("inconclusive", False)


def test_a_current_run_that_lost_its_look_leaves_what_it_learns_undecided() -> None:
    why = {"exact": "look_steps is 0"}
    found = compared(CURRENT.model_copy(update={"exact": {}, "unmeasured": why}))
    assert {found.check(stage).status for stage in LEARNED_STAGES} == {"inconclusive"}
    said = "the current side has no look (look_steps is 0)"
    assert found.check("trajectory").message == said
    assert found.verdict == "inconclusive"
    assert said in found.first_line


@pytest.mark.parametrize("current", [CURRENT, CURRENT.model_copy(update={"exact": {}})])
def test_a_baseline_without_a_look_has_nothing_that_a_run_could_lack(current: RunRecord) -> None:
    found = compared(current, [one.model_copy(update={"exact": {}}) for one in BASELINE])
    assert {found.check(stage).status for stage in LEARNED_STAGES} == {"skip"}
    assert found.verdict == "inconclusive"
    assert "no exact check ran" in found.first_line


def test_of_the_current_runs_the_most_different_speaks_of_the_baseline_the_newest() -> None:
    older = altered(record(90), "exact", "first_loss", "loss", to=9.0)
    newest = record(95)
    assert compare_to_baseline([CURRENT, older], BASELINE).verdict == "changed"
    assert compare_to_baseline(CURRENT, [older, newest]).check("first_loss").status == "pass"
    unlooked = newest.model_copy(update={"exact": {}})
    assert compare_to_baseline(CURRENT, [older, unlooked]).check("first_loss").status == "changed"


def test_another_command_that_trains_the_same_does_not_hide_where_the_work_went() -> None:
    before = altered(record(1), "config", "command", to=["python", "train.py", "--mode", "a"])
    after = altered(record(2), "config", "command", to=["python", "train.py", "--mode", "b"])
    found = compare_to_baseline(after, before)
    assert found.differences == ()
    reads = altered(after, "exact", "work", "host_reads", to=90)
    found = compare_to_baseline(reads, before)
    assert found.first_difference is not None
    assert found.first_difference.stage == "work"
    learned = altered(after, "exact", "first_loss", "loss", to=9.0)
    assert compare_to_baseline(learned, before).verdict == "changed"


@pytest.mark.parametrize(("moved", "status"), [(5e-7, "pass"), (5e-5, "changed")])
def test_a_small_kl_may_move_by_the_rounding_of_log_probabilities(
    moved: float, status: str
) -> None:
    before = altered(CURRENT, "exact", "trajectory", "rl", to={"kl": [-1.1e-3] * 12})
    after = altered(before, "exact", "trajectory", "rl", to={"kl": [-1.1e-3 + moved] * 12})
    after = after.model_copy(update={"run_id": "another"})
    assert compare_to_baseline(after, before).check("trajectory").status == status


def test_what_an_older_version_did_not_record_is_no_difference() -> None:
    """Config keys that came later have their default then, and a fact that is off was off."""
    older, newer = BASELINE[-1].model_copy(deep=True), CURRENT.model_copy(deep=True)
    newer.config |= {"use_peft": False, "command": [], "callbacks": None}
    older.config.pop("use_peft", None)
    older.config |= {"command": None, "callbacks": []}
    older.exact["model"].pop("sharded", None)
    newer.exact["model"]["sharded"] = False
    found = compare_to_baseline(newer, older, gates=())
    assert not found.config_changes
    assert not found.differences
    newer.config["use_peft"] = True
    newer.exact["model"]["sharded"] = True
    found = compare_to_baseline(newer, older, gates=())
    assert [change.key for change in found.config_changes] == ["use_peft"]
    assert [d.signal for d in found.differences] == ["use_peft", "sharded"]
