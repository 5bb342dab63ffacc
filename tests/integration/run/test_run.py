"""`canary run` from end to end: what a complete record holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from canary.compare.rules.comparison import rule_checks
from canary.config.schema import ONLINE_TRAINERS, TRAINING_TYPES
from canary.record.types import PHASES
from tests.integration.conftest import LOOKED, STEPS, Finished, run_config, settings

pytestmark = pytest.mark.train

SIDES = {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"}
ROLLOUT = {
    *("reward", "reward_std", "kl", "entropy", "completions/mean_length"),
    *("completions/eos_rate", "clip_ratio/region_mean"),
}
MATTERS: dict[str, set[str]] = {
    "sft": {"mean_token_accuracy", "entropy"},
    "dpo": SIDES,
    "reward": {"margin", "accuracy", "min_reward", "mean_reward", "max_reward"},
    "kto": {"kl", "rewards/chosen", "rewards/rejected", "rewards/margins"},
    "grpo": ROLLOUT,
    "rloo": ROLLOUT,
    "ppo": {
        *("loss", "policy_loss", "value_loss", "entropy", "kl", "kl_sequence", "kl_coef"),
        *("clip_ratio", "value_clip_ratio", "approx_kl", "ratio_deviation", "updates"),
        *("score", "reward", "reward_std", "values_mean", "logprobs", "reference_logprobs"),
        *("explained_variance", "completion_length", "eos_rate"),
    },
    "orpo": SIDES | {"nll_loss", "log_odds_ratio"},
    "cpo": SIDES | {"nll_loss"},
}
"""What each trainer's rows must hold, under trl's own names."""


EVERY_DAY = ("sft", "dpo", "grpo", "ppo")
"""Trainers whose run is part of `make test`."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=pytest.mark.end_to_end if kind in EVERY_DAY else ())
        for kind in TRAINING_TYPES
    ],
)
def finished_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    """One complete run of each trainer."""
    return run_config(tmp_path_factory.mktemp(request.param), settings(request.param))


def test_a_run_completes_and_prints_its_folder(finished_run: Finished) -> None:
    assert finished_run.code == 0, finished_run.err + finished_run.log()
    assert "\n  rules       Nothing wrong was found: " in finished_run.err
    assert "\nnext: change something, run it again" in finished_run.err
    names = {path.name for path in finished_run.folder.iterdir()}
    assert names == {
        "config.yaml",
        "metrics.json",
        "steps.jsonl",
        "alerts.jsonl",
        "log.txt",
    }
    record = finished_run.record()
    assert record.status == "completed"
    assert record.reason is None
    (launch,) = record.launches
    assert (launch.status, launch.steps, launch.look_steps) == ("completed", STEPS, LOOKED)
    looked = [bool(row.get("look")) for row in finished_run.rows()]
    assert looked == [True] * LOOKED + [False] * (STEPS - LOOKED)
    assert record.config["output_dir"] == str(finished_run.folder.parent)
    assert record.alerts == []
    assert (finished_run.folder / "alerts.jsonl").read_text() == ""
    assert "NaN" not in (finished_run.folder / "metrics.json").read_text()


def test_phases_of_every_step_add_up_to_its_wall_time(finished_run: Finished) -> None:
    rows = finished_run.rows()
    assert len(rows) == STEPS
    for row in rows:
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"], rel=0.02)  # type: ignore[attr-defined]
        assert set(row["phases"]) <= set(PHASES)  # type: ignore[call-overload]
    phases = finished_run.record().phases
    for name in ("data", "forward", "backward", "optimizer"):
        assert phases[name] > 0, name


def test_steps_are_timed_from_end_to_end_without_gaps(finished_run: Finished) -> None:
    rows: list[Any] = finished_run.rows()
    written = [row["time"] for row in rows]
    walls = [row["wall_s"] for row in rows]
    elapsed = written[-2] - written[LOOKED]
    # A busy machine may take the core from a step that has ended before its moment is written.
    taken = sum(row["host"]["run_delay_s"] or 0.0 for row in rows[LOOKED + 1 :])
    assert sum(walls[LOOKED + 1 : -1]) == pytest.approx(elapsed, rel=0.05, abs=0.005 + taken)


def test_rates_utilisation_and_memory_are_recorded_or_their_absence_is(
    finished_run: Finished,
) -> None:
    record = finished_run.record()
    perf, host = record.perf, record.host
    rows: list[Any] = finished_run.rows()[LOOKED + 1 :]

    def a_second(key: str) -> float:
        return float(sum(row[key] for row in rows) / sum(row["wall_s"] for row in rows))

    assert perf.samples_per_sec == pytest.approx(a_second("samples"))
    assert perf.approx_tokens_per_sec == pytest.approx(a_second("input_tokens"))
    if record.config["training_type"] in ONLINE_TRAINERS:
        assert perf.seconds_per_completion_token is not None
        rate = 1 / perf.seconds_per_completion_token
        assert rate == pytest.approx(a_second("completion_tokens"))
        assert f"{rate:,.{int(rate < 100)}f} completion tokens/s" in finished_run.err
    assert perf.cpu_utilization_avg is not None
    assert 0 < perf.cpu_utilization_avg < 100 * (record.env["cpu_usable"] or 0) + 50
    assert host.cpu_seconds_per_step is not None
    assert host.cpu_seconds_per_step > 0
    assert host.cpu_utilization_of_cores is not None
    assert f"CPU {host.cpu_utilization_of_cores:.0f}% of" in finished_run.err
    assert record.memory.peak_rss_bytes is not None
    assert record.memory.peak_rss_bytes > 2**27
    for name, value in (
        ("perf.gpu_utilization_avg", perf.gpu_utilization_avg),
        ("memory.peak_allocated_bytes", record.memory.peak_allocated_bytes),
        ("host.gil_contention", host.gil_contention),
    ):
        assert (value is None) == (name in record.unmeasured), name


def test_the_exact_signals_of_all_stages_are_there(finished_run: Finished) -> None:
    record = finished_run.record()
    exact: Any = record.exact
    ppo = record.config["training_type"] == "ppo"
    assert exact["steps"] == LOOKED
    assert len(exact["data"]["dataset_sha256"]) == 64
    assert len(exact["data"]["tokenizer"]["vocab_sha256"]) == 64
    assert [len(step) for step in exact["batches"]] == [1 if ppo else 2] * LOOKED
    assert all(len(micro["sha256"]) == 64 for step in exact["batches"] for micro in step)
    assert exact["model"]["trainable_tensors"] > 0
    assert exact["model"]["dtypes"] == {"torch.float32": exact["model"]["trainable_tensors"]}
    assert math.isfinite(exact["first_loss"]["loss"])
    assert exact["first_gradient"]["total"] > 0
    assert exact["first_gradient"]["tensors_without_gradient"] == []
    # The clip reads the same gradients: its norm is the root of the groups' squares. A step of PPO
    # has several updates, and the norm is the largest of theirs.
    first, told = exact["first_gradient"]["total"], exact["trajectory"]["grad_norms"][0]
    assert told == pytest.approx(first, rel=1e-4) or (ppo and told > first)
    assert ("rollout" in exact) is ppo
    assert exact["first_update"]["delta_norm"] > 0
    assert exact["trajectory"]["losses"] == record.stability.loss_values[:LOOKED]
    assert exact["work"]["step"] == LOOKED
    assert exact["work"]["operator_total"] > 100
    assert exact["work"]["flops"] > 0
    assert exact["work"]["tokens_fed"] > 0
    assert len(exact["memory"]["live_tensors"]) == LOOKED
    assert exact["calls"]["dataset_maps_executed"] == exact["calls"]["dataset_maps"]
    assert exact["frozen"]["changed"] == []


def test_generation_reward_and_logprob_are_phases_of_online_training_alone(
    finished_run: Finished,
) -> None:
    record = finished_run.record()
    online = record.config["training_type"] in ONLINE_TRAINERS
    for name in ("generation", "reward", "logprob"):
        assert (record.phases[name] > 0) is online, name
        assert all((row["phases"].get(name, 0) > 0) is online for row in finished_run.rows())  # type: ignore[attr-defined]
    assert ("completion_tokens" in record.tokens) is online


def test_every_step_records_what_matters_for_its_trainer(finished_run: Finished) -> None:
    record = finished_run.record()
    wanted = MATTERS.get(record.config["training_type"], set())
    for row in finished_run.rows():
        assert wanted <= set(row["rl"]), row["step"]  # type: ignore[call-overload]
    for name in wanted:
        assert record.rl[name].count == STEPS - LOOKED - 1, name
        assert len(record.exact["trajectory"]["rl"][name]) == LOOKED


def test_the_rules_of_each_trainer_hold(finished_run: Finished) -> None:
    record = finished_run.record()
    found = {check.name: check for check in rule_checks([record])}
    assert {check.status for check in found.values()} <= {"pass", "skip"}, found
    kind = record.config["training_type"]
    asked = {
        "dpo": {"dpo_first_loss"},
        "kto": {"kto_first_loss"},
        "grpo": {"starts_at_ratio_one", "sampled_ids_trained"},
        "rloo": {"starts_at_ratio_one", "sampled_ids_trained"},
        "ppo": {
            "starts_at_ratio_one",
            "advantages_scaled",
            "sampled_ids_trained",
            "rewards_add_up",
            "reward_varies",
        },
    }
    for name in {"raw_loss_finite", "optimizer_holds_trainable"} | asked.get(kind, set()):
        assert found[name].status == "pass", name


@pytest.mark.parametrize(
    ("training_type", "use_peft"),
    [("sft", False), ("grpo", False), ("ppo", False), ("dpo", True), ("reward", True)],
)
def test_two_runs_are_bit_equal(tmp_path: Path, training_type: str, use_peft: bool) -> None:
    values = settings(training_type, use_peft=use_peft, max_steps=3)
    first, second = (run_config(tmp_path / name, values) for name in ("a", "b"))
    assert first.code == second.code == 0, first.err + first.log()
    one, two = first.record(), second.record()
    for stage, found in one.exact.items():
        assert found == two.exact.get(stage), stage
    assert one.stability.loss_values == two.stability.loss_values
    if use_peft:
        assert one.exact["frozen"]["tensors"] > 0
        trained = one.exact["model"]["trainable_groups"]
        heads = {name for name in trained if "lora" not in name}
        assert len(heads) == (training_type == "reward"), heads
