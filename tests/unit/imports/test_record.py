"""The record of an imported run: what it holds, what it says of itself, what compares with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.comparability import machine_key, mismatch, why_not_timed, why_unusable
from canary.compare.stats import compare_to_baseline
from canary.errors import CanaryError, InputError
from canary.gate.records import read_record
from canary.imports.preset import choose, load_preset
from canary.imports.reading import Asked
from canary.imports.record import import_run
from canary.imports.series import MOST_STEPS
from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.unit.imports.importing import Run
from tests.unit.imports.importing import run as run

VERL = {
    "actor/pg_loss": 0.1,
    "actor/grad_norm": 1.0,
    "actor/lr": 1e-6,
    "critic/score/mean": 0.5,
    "timing_s/step": 2.0,
    "actor/perf/max_memory_allocated_gb": 20.5,
}


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def verl(path: Path, steps: int = 30, **other: float) -> Path:
    return lines(path, ({"step": step, "data": {**VERL, **other}} for step in range(1, steps + 1)))


def made(source: Path, **asked: Any) -> RunRecord:
    machine = asked.pop("machine", None)
    record, folder, _ = import_run(Asked(source, **asked), source.parent / "out", None, machine)
    stored = load_record(folder)
    assert stored.model_dump_json() == record.model_dump_json()
    return stored


def test_a_record_has_the_canarys_names_and_units(tmp_path: Path) -> None:
    record = made(verl(tmp_path / "a.jsonl"))
    assert record.status == "completed"
    assert record.name == "verl"
    assert record.config["training_type"] == "verl"
    assert record.source is not None
    assert (record.source.format, record.source.preset) == ("jsonl", "verl")
    assert record.source.names["reward"] == "critic/score/mean"
    assert record.perf.step_time.median == 2.0
    assert record.perf.max_mem_mb == 20.5 * 1024
    assert record.memory.peak_allocated_bytes == int(20.5 * 2**30)
    assert record.curves["reward"].values == [0.5] * 30
    assert record.curves["step_time_s"].steps == list(range(1, 31))
    assert record.stability.final_loss == 0.1
    assert record.alert_summary is None
    assert not record.exact
    assert "the run was imported" in record.unmeasured["exact"]
    assert why_unusable(record) == ""


def test_an_evaluation_at_the_end_is_no_diverged_loss(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1.0} for step in range(1, 21)]
    record = made(lines(tmp_path / "a.jsonl", [*rows, {"step": 21, "eval_loss": 3.0}]))
    assert not record.stability.loss_diverged
    assert len(record.stability.loss_values) == 20
    assert record.rl["eval_loss"].count == 1


def test_step_times_come_from_the_times_of_one_process(tmp_path: Path) -> None:
    begun = 1_700_000_000.0
    first = [{"step": s, "loss": 1.0, "time": begun + 3 * s} for s in range(1, 21)]
    again = [{"step": s, "loss": 0.9, "time": begun + 9_000 + 3 * s} for s in range(16, 31)]
    record = made(lines(tmp_path / "a.jsonl", [*first, *again]))
    assert record.perf.step_time.max == pytest.approx(3.0)
    assert any("differences of the times" in note for note in record.notes)
    assert any("written again" in note for note in record.notes)


def test_without_times_the_step_time_is_not_judged_and_the_comparison_says_why(
    tmp_path: Path,
) -> None:
    rows = [{"step": step, "loss": 1.0} for step in range(1, 21)]
    one, two = made(lines(tmp_path / "a.jsonl", rows)), made(lines(tmp_path / "b.jsonl", rows))
    found = compare_to_baseline(two, one)
    assert why_unusable(two) == ""
    assert found.check("step_time_median").status == "skip"
    assert "no step time and no times" in found.check("step_time_median").message
    assert found.check("final_loss").status == "pass"
    assert "alerts" not in {check.name for check in found.checks}


def test_a_baseline_with_step_times_never_passes_for_a_run_without(tmp_path: Path) -> None:
    timed = made(verl(tmp_path / "a.jsonl"))
    bare = dict(VERL)
    del bare["timing_s/step"]
    rows = [{"step": step, "data": bare} for step in range(1, 31)]
    untimed = made(lines(tmp_path / "b.jsonl", rows))
    found = compare_to_baseline(untimed, [timed])
    assert found.verdict == "inconclusive"
    assert found.check("step_time_median").status == "inconclusive"


def test_a_worse_loss_is_a_regression(tmp_path: Path) -> None:
    good = made(verl(tmp_path / "a.jsonl"))
    bad = made(verl(tmp_path / "b.jsonl", 30, **{"actor/pg_loss": 0.3}))
    assert compare_to_baseline(bad, good).verdict == "regression"


def test_too_few_steps_are_not_judged(tmp_path: Path) -> None:
    record = made(verl(tmp_path / "a.jsonl", steps=4))
    assert "too few steps: 4 were recorded" in why_unusable(record)


def test_two_frameworks_are_not_comparable(tmp_path: Path) -> None:
    one = made(verl(tmp_path / "a.jsonl"))
    other = made(lines(tmp_path / "b.jsonl", [{"step": s, "x": 1.0} for s in range(20)]))
    assert "two frameworks: the baseline was imported as verl" in mismatch(one, other)


def test_named_machines_have_histories_of_their_own(tmp_path: Path) -> None:
    here = made(verl(tmp_path / "a.jsonl"), machine="8xH100")
    there = made(verl(tmp_path / "b.jsonl"), machine="8xA100")
    unknown = made(verl(tmp_path / "c.jsonl"))
    assert machine_key(here) == "8xh100_x1"
    assert machine_key(unknown) == "unknown-machine_x1"
    assert "two machines" in mismatch(here, there)
    assert mismatch(here, unknown) == ""
    assert "is not known" in why_not_timed([here, unknown])
    another = made(verl(tmp_path / "d.jsonl"))
    assert mismatch(unknown, another) == ""
    assert "only by gates you wrote" in why_not_timed([unknown, another])
    assert "only by gates you wrote" in unknown.unmeasured["env.device"]
    assert "env.device" not in here.unmeasured


def test_rows_of_two_processes_with_one_name_are_kept_apart(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(1, 21):
        rows.append({"step": step, "loss/mean": 1.0, "time/step": 2.0, "optim/lr": 1.0})
        rows.append({"step": step, "progress/tokens": 9, "time/step": 7.0})
    record = made(lines(tmp_path / "a.jsonl", rows), preset="prime-rl")
    assert record.perf.step_time.median == 2.0
    assert record.rl["orchestrator/time/step"].median == 7.0


def test_a_source_name_that_is_the_canarys_for_something_else_is_kept_apart(
    tmp_path: Path,
) -> None:
    record = made(verl(tmp_path / "a.jsonl", reward=-5.0))
    assert record.rl["reward"].median == 0.5
    assert record.rl["source/reward"].median == -5.0


def test_of_presets_that_know_as_many_metrics_their_common_base_is_chosen() -> None:
    assert choose(["loss", "x", "y"])[0] is None
    names = [f"train/{name}" for name in ("loss", "grad_norm", "learning_rate", "reward")]
    preset, why = choose(names)
    assert preset is not None
    assert preset.framework == "transformers"
    assert why == "presets that extend it know as many metrics"
    assert choose(["loss", "grad_norm", "lr"])[0] is None


def test_the_preset_of_the_docs_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "import.md").read_text(encoding="utf-8")
    example = next(one for one in page.split("```yaml\n") if one.startswith("framework: "))
    file = tmp_path / "mine.yaml"
    file.write_text(example.split("```")[0], encoding="utf-8")
    names = ["train/total_loss", "rewards/b", "rewards/a", "step_ms", "train/grad_norm"]
    found = load_preset(str(file)).names_in(names)
    assert found["loss"] == ("train/total_loss", 1.0)
    assert found["reward"] == ("rewards/a", 1.0)
    assert found["step_time_s"] == ("step_ms", 0.001)
    assert found["grad_norm"] == ("train/grad_norm", 1.0)


def test_one_count_of_metrics_is_shown(run: Run, tmp_path: Path) -> None:
    """The step of a row is no metric, and a step time of the source is one."""
    rows = [{"step": step, "loss": 1.0, "reward": 0.1, "kl": 0.2} for step in range(1, 21)]
    _, _, err = run(["import", str(lines(tmp_path / "a.jsonl", rows)), "-o", str(tmp_path)])
    assert "20 rows of steps 1 to 20, 3 metrics\n" in err
    assert "; it names 3 of 3 metrics\n" in err
    assert "step time   not recorded: the source has no step time" in err
    assert "memory      not recorded: the source has no peak memory" in err
    _, _, err = run(["import", str(verl(tmp_path / "b.jsonl")), "-o", str(tmp_path)])
    count = err.split("steps 1 to 30, ")[1].splitlines()[0]
    assert f" of {count}\n" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("framework: mine\nmetric: {}\n", r"metric in .*:2: unknown key \(did you mean 'metrics'"),
        (
            "framework: mine\nmetrics: {loss: my}\n",
            r"metrics.loss in .*: input should be a list \(docs/import",
        ),
        ("metrics: {}\n", "framework in .*: field required"),
        (
            "framework: mine\nconsole:\n  -\n    line: '(a'\n",
            r"console.0.line in .*:4: is not a regular expression",
        ),
        ("framework: mine\nmetrics:\n  loss: [{name: a, scale: 0}]\n", "must not be 0"),
        ("- 1\n", "has no `key: value` lines"),
        ("!!python/object/apply:os.system ['true']\n", "mine.yaml"),
    ],
)
def test_a_wrong_preset_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CanaryError, match=said) as error:
        load_preset(str(file))
    assert "\n" not in str(error.value)


def test_the_longest_run_makes_a_record_that_the_reporting_job_reads(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with file.open("w", encoding="utf-8") as stream:
        for step in range(MOST_STEPS):
            row = {"step": step, "loss": 1.0 / (step + 3), "grad_norm": 2.0 / (step + 7)}
            stream.write(json.dumps(row | {"learning_rate": 1e-5 / (step + 1)}) + "\n")
    _, folder, imported = import_run(Asked(file), tmp_path / "out")
    assert read_record(folder / "metrics.json").perf.step_time.count == 0
    assert len(imported.mapped.rows) == MOST_STEPS


@pytest.mark.parametrize(
    ("limit", "said"),
    [("MOST_VALUES", "more than 20 values"), ("MOST_NAMES", "more than 20 metrics")],
)
def test_too_many_values_or_names_are_refused(
    limit: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"canary.imports.series.{limit}", 20)
    rows = [{"step": s, **{f"m{n}": 1.0 for n in range(30)}} for s in range(6)]
    with pytest.raises(InputError, match=said):
        made(lines(tmp_path / "a.jsonl", rows))


def test_more_metrics_than_a_record_holds_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canary.imports.mapping.MOST_METRICS", 3)
    rows = [{"step": s, "loss": 1.0, **{f"m{n}": 1.0 for n in range(9)}} for s in range(6)]
    record = made(lines(tmp_path / "a.jsonl", rows))
    assert any("7 metrics were left out, a record has 3" in note for note in record.notes)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    file = tmp_path / "run-1.wandb"
    file.write_bytes(b"x")
    with pytest.raises(InputError, match="need the package wandb, which is not installed"):
        import_run(Asked(file), tmp_path / "out")


def test_the_verb_lists_and_prints_presets(run: Run) -> None:
    code, out, _ = run(["import", "--presets"])
    assert code == 0
    assert len(out.splitlines()) == 18
    code, out, _ = run(["import", "--show-preset", "verl"])
    assert code == 0
    assert "framework: verl" in out
    code, _, err = run(["import", "--show-preset", "verll"])
    assert code == 2
    assert "did you mean 'verl'" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no source named"),
        (["a.jsonl", "--format", "jsnl"], "did you mean 'jsonl'"),
        (["a.jsonl", "--preset", "verll"], "did you mean 'verl'"),
        (["a.jsonl", "--name", "../x"], "name"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    words: list[str], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verl(tmp_path / "a.jsonl")
    code, _, err = run(["import", *words])
    assert code == 2, err
    assert said in err
    assert len(err.strip().splitlines()) == 1
