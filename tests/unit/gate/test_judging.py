"""The trusted half's judgement: what a pull request cannot loosen, and what is never a pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from canary.baseline.ancestry import Ancestry
from canary.baseline.history import Context, save
from canary.config.load import LoadedConfig, load_config
from canary.errors import ConfigError
from canary.gate.base_config import held_settings, load_base_config, repository_path
from canary.gate.judging import Grounds, commit_of, judge, paired
from canary.gate.records import Manifest, Part, Records
from canary.github.status import Answer
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.unit.comparing import altered, example, record

CONFIG = "canary.yaml"
COMMITS = [f"{place:02d}" * 20 for place in range(10, 20)]


def base_config(tmp_path: Path, **changes: object) -> LoadedConfig:
    """The base branch's config: that of the example, with changes."""
    path = tmp_path / "base.yaml"
    values = {key: value for key, value in example().config.items() if value is not None}
    kept = ("training_type", "name", "max_steps", "look_steps", "metrics_warmup_steps")
    values = {key: values[key] for key in kept}
    path.write_text(yaml.safe_dump(values | changes))
    return load_config(path)


def given(
    tmp_path: Path, *runs: RunRecord, role: str = "current", compare: str = "baseline"
) -> Records:
    """A records folder."""
    return several(tmp_path, {role: runs}, compare)


def several(tmp_path: Path, sides: dict[str, tuple[RunRecord, ...]], compare: str) -> Records:
    root = tmp_path / "records"
    for role, runs in sides.items():
        for run in runs:
            folder = root / "00-canary" / role / run.run_id
            folder.mkdir(parents=True)
            (folder / "metrics.json").write_text(jsonio.dumps(run.model_dump()))
    part = Part(config=CONFIG, folder="00-canary", compare=compare)  # type: ignore[arg-type]
    return Records(root, Manifest(parts=[part]))


def stored(tmp_path: Path, count: int = 3, first: int = 0, **context: object) -> Path:
    root = tmp_path / "baseline"
    for place in range(first, first + count):
        known = Context(commit=COMMITS[place], verdict="pass")
        save(root, record(place), context=known.model_copy(update=context))
    return root


def descending(count: int = 10) -> Ancestry:
    return Ancestry({sha[:12]: count - i for i, sha in enumerate(COMMITS)})


def answer(tmp_path: Path, records: Records, **grounds: object) -> Answer:
    known = Grounds(CONFIG, base_config(tmp_path), stored(tmp_path), descending())
    return judge(replace(known, **grounds), records)  # type: ignore[arg-type]


def test_a_healthy_run_against_three_stored_ones_is_judged(tmp_path: Path) -> None:
    found = answer(tmp_path, given(tmp_path, record(100)))
    assert found.comparison.verdict in ("pass", "inconclusive")
    assert found.canary == "sft_smoke"
    assert commit_of(found.baseline[-1]) == COMMITS[2]
    assert found.comparison.tier == "default"


def test_a_gate_of_looks_alone_asks_for_no_more_steps(tmp_path: Path) -> None:
    losses = record(100).stability.loss_values[:12]
    short = altered(record(100), "stability", "loss_values", to=losses)
    short = altered(short, "stability", "final_loss", to=losses[-1])
    look = altered(short, "config", "exact", to=True)
    found = answer(tmp_path, given(tmp_path, look), base=base_config(tmp_path, exact=True))
    assert found.comparison.verdict != "error", found.comparison.first_line
    whole = answer(tmp_path / "whole", given(tmp_path / "whole", short))
    assert "is marked completed after only 12 steps" in whole.comparison.first_line


def test_an_invariant_is_red_where_a_pull_request_breaks_it_and_not_where_the_branch_did(
    tmp_path: Path,
) -> None:
    def unused(run: RunRecord, *tensors: str) -> RunRecord:
        return altered(run, "exact", "first_update", "tensors_unchanged", to=list(tensors))

    root = tmp_path / "broken"
    for place in range(3):
        known = Context(commit=COMMITS[place], verdict="pass")
        save(root, unused(record(place), "pooler.weight"), context=known)
    for name, history, tensors, red in (
        ("same", root, ("pooler.weight",), False),
        ("more", root, ("pooler.weight", "layer.weight"), True),
        ("new", stored(tmp_path), ("pooler.weight",), True),
    ):
        records = given(tmp_path / name, unused(record(100), *tensors))
        found = answer(tmp_path, records, history=history).comparison
        assert (found.verdict == "regression") == red, name
        assert found.check("trainable_changed").status == ("fail" if red else "warn"), name


def test_if_all_stored_runs_of_the_machine_are_red_the_reason_says_so(tmp_path: Path) -> None:
    history = stored(tmp_path / "red", verdict="regression")
    found = answer(tmp_path, given(tmp_path, record(100)), history=history).comparison
    assert found.verdict == "error"
    assert "all 3 stored runs of this machine are red" in found.first_line
    assert "ran on" not in found.first_line


def test_no_record_of_a_config_is_an_error(tmp_path: Path) -> None:
    nothing = Records(tmp_path, Manifest(error="no GPU to train on: install the driver"))
    found = answer(tmp_path, nothing)
    assert found.comparison.verdict == "error"
    assert "install the driver" in found.comparison.first_line


def test_the_reason_why_nothing_ran_is_the_answer(tmp_path: Path) -> None:
    part = Part(config=CONFIG, folder="00-canary", error="no model named x\n::error::y")
    found = answer(tmp_path, Records(tmp_path, Manifest(parts=[part])))
    assert found.comparison.first_line == "Error: no model named x ::error::y."


def test_a_new_name_does_not_open_an_empty_drawer(tmp_path: Path) -> None:
    renamed = record(100).model_copy(update={"name": "brand_new"})
    found = answer(tmp_path, given(tmp_path, renamed))
    assert found.canary == "sft_smoke"
    assert found.comparison.verdict != "no-baseline"


def test_another_dtype_meets_the_baseline_and_needs_acceptance(tmp_path: Path) -> None:
    half = altered(record(100), "config", "dtype", to="bfloat16")
    half = altered(half, "exact", "first_loss", "loss", to=9.0)
    found = answer(tmp_path, given(tmp_path, half))
    assert found.comparison.verdict == "changed"


def test_another_device_is_an_error_and_no_first_run(tmp_path: Path) -> None:
    moved = altered(record(100), "config", "device", to="cuda")
    moved.env["cpu"] = "another processor"
    found = answer(tmp_path, given(tmp_path, moved))
    assert found.comparison.verdict == "error"
    assert "device auto -> cuda" in found.comparison.first_line


@pytest.mark.parametrize("key", ["max_steps", "look_steps"])
def test_fewer_steps_than_the_base_branch_asks_for_are_an_error(tmp_path: Path, key: str) -> None:
    short = altered(record(100), "config", key, to=2)
    found = answer(tmp_path, given(tmp_path, short))
    assert found.comparison.verdict == "error"
    assert f"{key} 2, the base branch's config requires" in found.comparison.first_line


def test_a_look_that_told_nothing_is_an_error_and_no_way_around_the_exact_lane(
    tmp_path: Path,
) -> None:
    why = "the training ended before its look did"
    bare = record(100).model_copy(update={"exact": {}, "unmeasured": {"exact": why}})
    found = answer(tmp_path, given(tmp_path, bare))
    assert found.comparison.verdict == "error"
    assert why in found.comparison.first_line


@pytest.mark.parametrize("value", ["5", None, 1.0])
def test_a_step_count_that_is_no_number_is_an_error(tmp_path: Path, value: object) -> None:
    odd = altered(record(100), "config", "max_steps", to=value)
    assert answer(tmp_path, given(tmp_path, odd)).comparison.verdict == "error"


def test_a_longer_warm_up_than_the_base_branchs_is_an_error(tmp_path: Path) -> None:
    """It would leave next to nothing to be timed."""
    warm = altered(record(100), "config", "metrics_warmup_steps", to=94)
    found = answer(tmp_path, given(tmp_path, warm))
    assert found.comparison.verdict == "error"
    assert (
        "metrics_warmup_steps 94, the base branch's config allows 10" in found.comparison.first_line
    )


def test_a_run_of_another_commit_than_the_head_is_told(tmp_path: Path) -> None:
    run = altered(record(100), "git", "sha", to="e" * 40)
    found = answer(tmp_path, given(tmp_path, run), head_sha="f" * 40)
    assert any("not the head fffffffff" in note for note in found.comparison.notes)


def test_thresholds_come_from_the_base_branch_and_not_from_the_record(tmp_path: Path) -> None:
    loose = altered(record(100, 0.2), "config", "thresholds", to={"base_tier": "smoke"})
    base = base_config(tmp_path, thresholds={"base_tier": "nightly"})
    found = answer(tmp_path, given(tmp_path, loose), base=base)
    assert found.comparison.tier == "nightly"
    assert found.comparison.check("step_time_mean").threshold == 5.0


def test_only_runs_of_ancestors_count_and_the_rest_is_said(tmp_path: Path) -> None:
    ancestry = Ancestry({COMMITS[0][:12]: 0})
    found = answer(tmp_path, given(tmp_path, record(100)), ancestry=ancestry)
    assert found.comparison.verdict == "error", "on a branch cut early anything would pass"
    assert "descends from 1 of 3 stored runs" in found.comparison.first_line


@pytest.mark.parametrize(("recording", "verdict"), [(False, "error"), (True, "no-baseline")])
def test_a_branch_from_before_the_baseline_is_no_first_run(
    tmp_path: Path, recording: bool, verdict: str
) -> None:
    old = Ancestry({"f" * 12: 0})
    records = given(tmp_path, record(100))
    found = answer(tmp_path, records, ancestry=old, recording=recording)
    assert found.comparison.verdict == verdict
    if not recording:
        assert "merge the base branch into it" in found.comparison.first_line


def test_pairs_are_judged_as_pairs(tmp_path: Path) -> None:
    base = tuple(record(2 * place) for place in range(3))
    head = tuple(record(2 * place + 1, 0.2) for place in range(3))
    records = several(tmp_path, {"base": base, "head": head}, "ab")
    found = answer(tmp_path, records, compare="ab")
    assert found.comparison.verdict == "regression"
    assert "3 pairs, base and head alternating" in found.comparison.notes[-1]


def test_a_commit_of_the_base_that_is_none_is_not_told_on(tmp_path: Path) -> None:
    base = tuple(record(2 * place) for place in range(3))
    head = tuple(record(2 * place + 1) for place in range(3))
    for run in base:
        run.git["sha"] = "x ##[add-mask]pass"
    found = answer(tmp_path, several(tmp_path, {"base": base, "head": head}, "ab"), compare="ab")
    assert commit_of(found.baseline[-1]) == ""


def failed(number: int) -> RunRecord:
    return record(number).model_copy(update={"status": "failed", "reason": "boom"})


def test_a_head_that_fails_twice_in_pairs_is_a_regression(tmp_path: Path) -> None:
    sides = {"base": (record(0), record(3)), "head": (record(1), failed(4), failed(5))}
    found = answer(tmp_path, several(tmp_path, sides, "ab"), compare="ab")
    assert found.comparison.verdict == "regression"
    assert "boom" in found.comparison.first_line


def test_a_base_that_fails_twice_is_an_error(tmp_path: Path) -> None:
    sides = {"base": (failed(0), failed(1)), "head": (record(2),)}
    assert (
        answer(tmp_path, several(tmp_path, sides, "ab"), compare="ab").comparison.verdict == "error"
    )


def test_a_head_that_keeps_crashing_between_good_runs_is_a_regression(tmp_path: Path) -> None:
    sides = {
        "base": (record(0), record(4), record(8)),
        "head": (failed(1), record(2), failed(5), record(6), failed(9), record(10)),
    }
    found = answer(tmp_path, several(tmp_path, sides, "ab"), compare="ab")
    assert found.comparison.verdict == "regression"


def test_a_crash_that_was_repeated_is_told(tmp_path: Path) -> None:
    sides: dict[str, tuple[RunRecord, ...]] = {
        "current": (record(100),),
        "failed": (failed(99),),
    }
    found = answer(tmp_path, several(tmp_path, sides, "baseline"))
    assert "a run ended as failed (boom)" in found.comparison.notes


def test_pairs_that_were_cut_short_are_as_many_as_both_have() -> None:
    base, head = paired([record(0), record(3)], [record(1)])
    assert (len(base), len(head)) == (1, 1)


# The base branch's config.


def reading(files: dict[str, str]) -> LoadedConfig | None:
    return load_base_config(
        lambda path: files[path].encode() if path in files else None, "ml/canary.yaml"
    )


def test_a_base_config_is_read_with_what_it_extends() -> None:
    found = reading(
        {
            "ml/canary.yaml": "extends: ../shared/base.yaml\nmax_steps: 30\n",
            "shared/base.yaml": "training_type: sft\nmax_steps: 10\nname: ours\n",
        }
    )
    assert found is not None
    assert (found.config.max_steps, found.config.name) == (30, "ours")


def test_a_config_that_the_base_does_not_have_is_none() -> None:
    assert reading({}) is None


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"ml/canary.yaml": "extends: ../../etc/passwd\n"}, "is outside the repository"),
        ({"ml/canary.yaml": "extends: gone.yaml\n"}, "which is missing"),
        ({"ml/canary.yaml": "max_step: 3\n"}, "max_step"),
        ({"ml/canary.yaml": "extends: canary.yaml\n"}, "circle"),
    ],
)
def test_a_base_config_that_is_wrong_says_so(files: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        reading(files)


def test_a_config_out_of_the_repository_is_refused() -> None:
    for path in ("../x.yaml", "/etc/x.yaml", "a/../../x.yaml"):
        with pytest.raises(ConfigError, match="is outside the repository"):
            repository_path(".", path)


def test_the_base_branchs_steps_are_carried_over(tmp_path: Path) -> None:
    base = base_config(tmp_path, max_steps=40)
    assert "max_steps=40" in held_settings(base)
    assert "metrics_warmup_steps=10" in held_settings(base)


def test_the_base_branchs_gates_say_which_curves_a_run_keeps(tmp_path: Path) -> None:
    gates = [{"name": "reward", "limit": "5%"}, {"name": "a: 'b' #c", "worse": "both", "limit": 1}]
    base = base_config(tmp_path, metrics=gates)
    pull_requests = tmp_path / "head.yaml"
    pull_requests.write_text("training_type: sft\nmetrics: [{name: loss, limit: 5%}]\n")
    held = load_config(pull_requests, held_settings(base))
    assert held.config.metrics == base.config.metrics
    bare = base_config(tmp_path)
    kept = load_config(pull_requests, held_settings(bare))
    assert [gate.name for gate in kept.config.metrics] == ["loss"]
