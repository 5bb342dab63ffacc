"""Logs in the forms in which people attach them: each is read right or refused, never guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.imports.importing import Answer, Run, by_lines, imported, json_lines
from tests.unit.imports.importing import run as run

LOSSES = {step: round(2.0 - step / 40, 4) for step in range(10, 310, 10)}
AGAIN = {step: round(1.0 + step / 400, 4) for step in range(10, 210, 10)}


def read(run: Run, path: Path, content: str | bytes, *options: str) -> Answer:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return imported(run, path, *options)


def table(name: str) -> str:
    return f"{name},loss\n" + "".join(f"{s},{v}\n" for s, v in LOSSES.items())


@pytest.mark.parametrize("name", ["GLOBAL_STEP", "Global Step", "train/global_step", "num_updates"])
def test_the_step_is_known_in_any_case(name: str, run: Run, tmp_path: Path) -> None:
    rows = [{name: step, "loss": loss} for step, loss in LOSSES.items()]
    for file, content in (("a.csv", table(name)), ("a.jsonl", json_lines(rows))):
        answer = read(run, tmp_path / file, content)
        answer.told(steps=30)
        assert answer.values("loss") == LOSSES


def test_rows_that_an_unknown_name_counts_are_not_numbered_from_1(run: Run, tmp_path: Path) -> None:
    answer = read(run, tmp_path / "a.csv", table("total_timesteps"))
    answer.refused("a.csv", "only total_timesteps, loss", "--preset FILE")
    preset = tmp_path / "mine.yaml"
    preset.write_text("framework: mine\nstep: [total_timesteps]\n")
    answer = imported(run, tmp_path / "a.csv", "--preset", str(preset))
    assert answer.values("loss") == LOSSES


def test_the_trainings_step_is_used_not_the_trackers(run: Run, tmp_path: Path) -> None:
    rows = [{"_step": 5 * s, "train/global_step": s, "loss": v} for s, v in LOSSES.items()]
    assert read(run, tmp_path / "a.json", json.dumps(rows)).values("loss") == LOSSES
    rows += [{"_step": 9_000, "other": 1.0}]
    answer = read(run, tmp_path / "a.json", json.dumps(rows))
    assert answer.values("loss") == {5 * step: loss for step, loss in LOSSES.items()}


def test_a_step_that_each_epoch_counts_anew_gives_way_to_one_that_goes_on(
    run: Run, tmp_path: Path
) -> None:
    rows = [{"step": s % 50, "global_step": s, "loss": v} for s, v in LOSSES.items()]
    assert read(run, tmp_path / "a.jsonl", json_lines(rows)).values("loss") == LOSSES


def test_a_torn_line_of_a_log_without_steps_is_refused(run: Run, tmp_path: Path) -> None:
    lines = [f"{{'loss': {value}, 'epoch': {step / 300}}}" for step, value in LOSSES.items()]
    lines[4] = lines[4][:15]
    path = tmp_path / "a.log"
    read(run, path, "\n".join(lines), "--preset", "transformers").refused("a.log:5", "torn")


def test_rows_that_count_in_two_ways_are_refused(run: Run, tmp_path: Path) -> None:
    rows = [{"step": 8 * s, "global_step": s, "loss": v} for s, v in LOSSES.items()]
    rows += [{"global_step": 300, "eval_loss": 1.0}, {"step": 2_400, "final": 1.0}]
    read(run, tmp_path / "a.jsonl", json_lines(rows)).refused("`step`", "`global_step`", "preset")


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.log"])
def test_two_runs_in_a_file_of_another_format_are_named(
    name: str, run: Run, tmp_path: Path
) -> None:
    steps = [*LOSSES.items(), *AGAIN.items()]
    rows = [{"step": step, "loss": loss} for step, loss in steps]
    contents = {
        "a.csv": "step,loss\n" + "".join(f"{s},{v}\n" for s, v in steps),
        "a.json": json.dumps(rows),
        "a.log": "".join(f"step {s} loss {v}\n" for s, v in steps),
    }
    answer = read(run, tmp_path / name, contents[name], *by_lines(tmp_path))
    answer.refused(name, "the steps begin again at 10", "write one run per file")


@pytest.mark.parametrize(
    ("name", "form"), [("run", "csv"), ("Run_ID", "jsonl"), ("seed", "jsonl"), ("rank", "csv")]
)
def test_rows_of_two_runs_in_turn_are_told_apart_by_their_column(
    name: str, form: str, run: Run, tmp_path: Path
) -> None:
    runs = {"7": LOSSES, "8": {step: value + 3 for step, value in LOSSES.items()}}
    rows = [{"step": s, name: r, "loss": runs[r][s]} for s in LOSSES for r in runs]
    lines = [f"{row['step']},{row[name]},{row['loss']}\n" for row in rows]
    content = json_lines(rows) if form == "jsonl" else f"step,{name},loss\n{''.join(lines)}"
    read(run, tmp_path / f"a.{form}", content).refused(f"differ in `{name}`: 7, 8")


def test_a_column_that_names_one_run_or_two_kinds_of_rows_splits_nothing(
    run: Run, tmp_path: Path
) -> None:
    rows = [
        {"step": s, "split": kind, name: v}
        for s, v in LOSSES.items()
        for kind, name in (("train", "loss"), ("eval", "score"))
    ]
    answer = read(run, tmp_path / "a.jsonl", json_lines(rows))
    assert answer.values("loss") == answer.values("score") == LOSSES


def test_two_trainings_in_a_log_without_steps_are_two_runs(run: Run, tmp_path: Path) -> None:
    lines = [f"{{'loss': {2 - n / 20}, 'epoch': {n / 10}}}\n" for n in range(1, 11)]
    content = "".join([*lines, "torch.OutOfMemoryError: CUDA out of memory\n", *lines])
    read(run, tmp_path / "a.log", content, *PRESET).refused("a.log:12: the epochs begin again")
    read(run, tmp_path / "b.log", "".join(lines), *PRESET).told(steps=10)


def test_a_decimal_comma_in_a_log_is_refused_and_thousands_are_read(
    run: Run, tmp_path: Path
) -> None:
    options = by_lines(tmp_path)
    answer = read(run, tmp_path / "a.log", "step 10k loss 2.0422\n", *options)
    answer.refused("a.log:1: the step is 10k")
    answer = read(run, tmp_path / "a.log", "step 1 loss 2,0422\n", *options)
    answer.refused("no metric")
    answer = read(run, tmp_path / "a.log", "step 1,000 loss 1,234.5,\n", *options)
    assert answer.values("loss") == {1_000: 1_234.5}


PRESET = ("--preset", "transformers")


def log(losses: dict[int, float]) -> str:
    return "".join(
        f"{{'loss': {v}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}}\r\n"
        for v in losses.values()
    )


TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("Traceback (most recent call last):\r\nRuntimeError: CUDA out of memory", "out of memory"),
        (f"{TRACE}ValueError: bad\nwandb: synced\n", "ValueError: bad (at train.py:3)"),
        ("slurmstepd: error: Detected 1 oom-kill event(s)\nbye\n", "oom-kill"),
        ("train.sh: line 3: 4711 Killed python train.py\n", "4711 Killed"),
        ("Terminated\n", "Terminated"),
        ("error: process exited with code 137\n", "code 137"),
        ("[rank3]:[E1] Watchdog caught collective operation timeout\n", "Watchdog caught"),
    ],
)
def test_a_log_that_ends_in_an_error_is_a_failed_run(
    end: str, why: str, run: Run, tmp_path: Path
) -> None:
    answer = read(run, tmp_path / "train.log", log(LOSSES) + end, *PRESET)
    assert answer.record["status"] == "failed"
    assert why in answer.record["reason"]
    assert "status      failed: " in answer.said
    assert len(answer.rows) == 30
    answer = read(run, tmp_path / "a.jsonl", json_lines([{"step": 1, "loss": 1.0}]) + end + "\n")
    assert answer.record["status"] == "failed"


@pytest.mark.parametrize(
    "end", ["", "saved\n", f"Exception ignored in: <f>\n{TRACE}\n", f"{TRACE}OSError: x\n1 retry\n"]
)
def test_a_log_that_goes_on_or_ends_well_is_completed(end: str, run: Run, tmp_path: Path) -> None:
    text = log(LOSSES) + end + (log({1: 1.0}) if "retry" in end else "")
    answer = read(run, tmp_path / "train.log", text, *PRESET)
    assert answer.record["status"] == "completed"
    assert answer.record["reason"] is None


def test_resumed_pandas_and_carriage_returns_are_read_as_before(run: Run, tmp_path: Path) -> None:
    history = [{"step": s, "loss": v} for s, v in LOSSES.items() if s <= 200]
    history += [{"step": s, "loss": float("nan")} for s in LOSSES if s > 150]
    state = json.dumps({"global_step": 300, "log_history": history})
    answer = read(run, tmp_path / "trainer_state.json", state)
    answer.told("5 values were written again", "15 values are NaN", steps=30)
    lines = [f"{n},{s},{v},\n{n},{s},,{v}\n" for n, (s, v) in enumerate(LOSSES.items())]
    answer = read(run, tmp_path / "a.csv", ",step,train_loss,eval_loss\n" + "".join(lines))
    assert answer.values("train_loss") == answer.values("eval_loss") == LOSSES
    bar = log(LOSSES).replace("{", " 3%|#  | 1/30\r{")
    read(run, tmp_path / "bar.log", bar, *PRESET).told(steps=30)
