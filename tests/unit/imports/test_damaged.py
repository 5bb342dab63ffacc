"""Damaged and odd sources: each gets one clear line, and none passes for a healthy run."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.imports.importing import ROWS, Run, by_lines, imported, json_lines
from tests.unit.imports.importing import run as run

NAN = float("nan")
LINES = json_lines()
TABLE = "step,loss\n" + "".join(f"{row['step']},{row['loss']}\n" for row in ROWS)
STATE = json.dumps({"global_step": 20, "log_history": ROWS})
RESUMED = [*ROWS, *({"step": s, "loss": 9.0} for s in range(16, 31))]


def with_row(row: dict[str, Any]) -> str:
    return json_lines([*ROWS, row])


REFUSED = [
    ("a.csv", "host,step,loss\na,1,3.0\nb,1,9.0\n", "a.csv:3: `loss` has two values at step 1"),
    ("a.csv", "step,Group,loss\n1,a,3.0\n1,b,9.0\n", "differ in `Group`: a, b (write one run per"),
    ("a.csv", "host,loss\na,3.0\nb,9.0\na,2.9\n", "no step of a known name, only loss, host"),
    ("a.csv", "step,key,value\n1,loss,3.0\n1,lr,9.0\n", "and one column per metric"),
    ("a.jsonl", '{"step":1,"name":"a","v":3}\n{"step":1,"name":"b","v":4}\n', "`name`: a, b"),
    ("a.jsonl", '{"step":1,"v":3}\n{"step":1,"v":4,"kind":"b"}\n', "`kind`: empty, b"),
    ("a.jsonl", '{"step":1,"v":3,"ok":true}\n{"step":1,"v":4,"ok":false}\n', "`ok`: True, False"),
    *(
        ("a.csv", f"step,loss\n1,2.0\n{step},1.9\n", f"a.csv:3: the step `step` is {step}, not a")
        for step in ("2/300", "step-2", "2k", "0x02")
    ),
    ("a.jsonl", '{"step":"one","loss":2}\n', "a.jsonl:1: the step `step` is one"),
    (
        "a.jsonl",
        '{"train_iter":"1/9","loss":2}\n',
        "no step of a known name",
    ),
    ("a.json", '[{"step":"1,001","loss":2}]', "a.json: the step `step` is 1,001, not a number"),
    ("a.csv", TABLE + "final,1.2\n", "a.csv:22: the step `step` is final, not a number"),
    ("a.csv", "loss,loss,step\n1,2,3\n", "two columns of one name"),
    ("a.csv", "", "is empty"),
    ("a.csv", " \t\n\n", "has no header"),
    ("a.csv", "step,loss\n", "has no metric with a number"),
    ("a.csv", TABLE.partition("\n")[2], "has no step of a known name"),
    ("a.csv", gzip.compress(TABLE.encode()), "is not UTF-8 text"),
    ("a.csv", "# made by me\n" + TABLE, "has no metric"),
    ("a.jsonl", "\n \n", "no metric"),
    ("a.jsonl", bytes(range(256)) * 10, "not JSON"),
    ("a.jsonl", '{"event": "began"}\n', "`event` is text"),
    ("a.jsonl", "[1, 2.0]\n[2, 1.9]\n", "is not an object"),
    ("a.jsonl", LINES.replace("\n", ""), "no metric"),
    ("a.jsonl", TABLE, "not JSON"),
    ("a.json", STATE[:500], "is not JSON"),
    ("a.json", "[[1, 2.0], [2, 1.9]]", "no known format"),
    ("a.json", "{}", "no known format"),
    ("a.json", "[" * 3_000 + "]" * 3_000, "too deep"),
    ("a.json", "<!DOCTYPE html>", "is not JSON"),
    ("trainer_state.json", '{"log_history": null}', "has no list `log_history`"),
    ("trainer_state.json", '{"log_history": []}', "no metric"),
    ("trainer_state.json", "version https://git-lfs.github.com/spec/v1\n", "is not JSON"),
    ("a.log", "nothing to see\n", "console patterns of a preset"),
    ("events.out.tfevents.1.a", "", "is empty"),
    ("events.out.tfevents.1.a", "plain text, and not a bit of an event", "no metric"),
    ("a.npz", b"PK\3\4" + bytes(100), "no known format"),
    ("noname", bytes(range(256)), "no known format"),
    ("README.md", "# hello\n", "no known format"),
]


@pytest.mark.parametrize(("name", "content", "why"), REFUSED)
def test_a_source_without_a_run_is_refused(
    name: str, content: str | bytes, why: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    imported(run, tmp_path / name).refused(name, why)


TOLD = [
    ("a.jsonl", '{"s":1,"step":1,"at":"0:01"}\n{"s":2,"step":1,"at":"0:02"}\n', "written again", 1),
    ("a.csv", TABLE + "21,1,5,6\n", "the row has 4 cells, the header 2", 20),
    ("a.csv", TABLE + "21,N/A\n22,#REF!\n", "`loss` is text, not a number (2 times)", 20),
    ("a.jsonl", LINES + LINES[:9], "the last line is half written", 20),
    ("a.jsonl", LINES + '{"step": 2{"step": 3}\n', ":21: the line is not JSON", 20),
    ("a.jsonl", LINES + "\0" * 700, "half written", 20),
    ("a.jsonl", LINES + '{"step": 21, "loss": ' + "[" * 5_000 + "\n", "is not JSON", 20),
    ("a.jsonl", with_row({"loss": 1.0}), "a row without a step was left out", 20),
    ("a.jsonl", with_row({"step": -1, "loss": 1.0}), "a row with the step -1 was left out", 20),
    ("a.jsonl", with_row({"step": 1e20, "loss": 1.0}), "a row with the step 1e+20", 20),
    ("a.jsonl", with_row({"step": 2.5, "loss": 1.0}), "a row with the step 2.5", 20),
    ("a.jsonl", json_lines([{"step": 0, "loss": 1.0}] * 9), "only one step", 1),
    ("a.jsonl", json_lines(RESUMED), "5 values were written again", 30),
    ("a.jsonl", with_row({"step": 21, "loss": None}), "null in loss: no value", 20),
    ("a.jsonl", with_row({"step": 21, "loss": 1, "a": [1]}), "`a` is a list, not a number", 21),
    ("a.jsonl", with_row({"step": 21, "loss": 1, "a": True}), "`a` is a yes or no", 21),
    ("a.jsonl", with_row({"step": 21, "loss": 1, "a" * 999: 1}), "a name of more than 300", 21),
]


@pytest.mark.parametrize(("name", "content", "what", "steps"), TOLD)
def test_what_is_repaired_is_told(
    name: str, content: str, what: str, steps: int | None, run: Run, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    imported(run, tmp_path / name).told(what, steps=steps)


HEALTHY = [
    ("a.csv", "\ufeff" + TABLE.replace("\n", "\r\n")),
    ("a.csv", TABLE.replace(",", "\t")),
    ("a.csv", TABLE.replace(",", ";")),
    ("a.json", json.dumps([{name: str(value) for name, value in row.items()} for row in ROWS])),
    ("a.csv", TABLE.rstrip("\n")),
    ("a.csv", TABLE.replace(",", ".0,", 21).replace("step.0", "step")),
    ("a.jsonl", "\ufeff" + LINES.replace("\n", "\r\n")),
    ("a.jsonl", with_row({"step": 20, "eval_loss": 1.5})),
    ("a.json", json.dumps(ROWS)),
    ("a.json", json.dumps({"loss": {str(row["step"]): row["loss"] for row in ROWS}})),
    ("trainer_state.json", STATE),
]


@pytest.mark.parametrize(("name", "content"), HEALTHY)
def test_a_healthy_source_raises_no_alarm(
    name: str, content: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    answer = imported(run, tmp_path / name)
    answer.told(steps=20)
    assert answer.values("loss") == {row["step"]: row["loss"] for row in ROWS}
    alarms = ("left out", "half written", "again", "sorted", "NaN", "not a number", "failed")
    assert not [word for word in alarms if word in answer.said]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", TABLE + "21,nan\n22,-inf\n23,1e999\n"),
        ("a.jsonl", LINES + json_lines({"step": s, "loss": NAN} for s in (21, 22, 23))),
        ("a.jsonl", LINES + f'{{"step": 21, "loss": {"9" * 401}}}\n{{"step":22,"loss":"NaN"}}\n'
         '{"step": 23, "loss": -1e999}\n'),
    ],
)  # fmt: skip
def test_values_that_are_not_finite_are_kept_and_told(
    name: str, content: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    answer = imported(run, tmp_path / name)
    answer.told("3 values are NaN or infinite, in loss", steps=23)
    assert sum(not math.isfinite(value) for value in answer.values("loss").values()) == 3


def test_names_of_metrics_that_differ_in_case_are_kept_apart(run: Run, tmp_path: Path) -> None:
    rows = [{"step": s, "loss": 1.0, "Loss": 2.0, "\x1b[31mred\n": 3.0} for s in range(9)]
    (tmp_path / "a.jsonl").write_text(json_lines(rows))
    answer = imported(run, tmp_path / "a.jsonl")
    assert (answer.values("loss")[3], answer.values("Loss")[3]) == (1.0, 2.0)
    answer.readable()


def test_several_files_or_formats_in_a_folder_are_named(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("rank_0.jsonl", "rank_1.jsonl"):
        (source / name).write_text(LINES)
    imported(run, source).refused("holds 2 runs: rank_0.jsonl, rank_1.jsonl")
    (source / "rank_1.jsonl").unlink()
    (source / "trainer_state.json").write_text(STATE)
    imported(run, source).told("not read: a Trainer's trainer_state.json", steps=20)


def events(folder: Path, values: Iterable[tuple[int, float]], started: int = 1) -> Path:
    """Write an event file with a scalar per step."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"events.out.tfevents.{started}.a"
    with path.open("wb") as stream:
        writer = RecordWriter(stream)
        for step, value in values:
            summary = Summary(value=[Summary.Value(tag="loss", simple_value=value)])
            writer.write(Event(step=step, wall_time=step, summary=summary).SerializeToString())
    return path


def steps(first: int, last: int, value: float = 1.0) -> list[tuple[int, float]]:
    return [(step, value) for step in range(first, last + 1)]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda raw: raw[:-9], "cut off or damaged"),
    "checksum": (lambda raw: raw[:-6] + b"\xff" + raw[-5:], "cut off or damaged"),
    "length": (lambda raw: raw + b"\xff" * 8, "cut off or damaged"),
    "nul": (lambda raw: raw + bytes(900), "cut off or damaged"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_event_file_is_read_up_to_the_damage(kind: str, run: Run, tmp_path: Path) -> None:
    path = events(tmp_path / "tb", steps(1, 20))
    change, what = DAMAGE[kind]
    path.write_bytes(change(path.read_bytes()))
    answer = imported(run, tmp_path / "tb")
    answer.told(what)
    assert len(answer.rows) >= 19


def test_event_files_of_one_folder_are_a_resumed_run_or_two(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    events(folder, steps(1, 20), 1)
    events(folder, steps(16, 30, 9.0), 2)
    answer = imported(run, folder)
    answer.told("5 values were written again", steps=30)
    assert answer.values("loss")[16] == 9.0
    events(folder, steps(1, 20, 8.0), 2)
    imported(run, folder).refused("tb: the steps begin again at 1", "write one run per file")
    events(folder / "other", steps(1, 20))
    events(tmp_path / "two" / "a", steps(1, 9))
    events(tmp_path / "two" / "b", steps(1, 9))
    imported(run, tmp_path / "two").refused("holds 2 runs: a, b")


def test_event_files_with_odd_values_are_told(run: Run, tmp_path: Path) -> None:
    events(tmp_path / "nan", [*steps(1, 9), (10, NAN)])
    imported(run, tmp_path / "nan").told("1 value is NaN", steps=10)
    events(tmp_path / "zero", steps(0, 0) * 9)
    imported(run, tmp_path / "zero").told("only one step", steps=1)
    events(tmp_path / "odd", [*steps(1, 9), (1 << 62, 1.0), (-5, 1.0)])
    imported(run, tmp_path / "odd").told("a row with the step", steps=9)
    events(tmp_path / "beside", steps(1, 9))
    (tmp_path / "beside" / "events.out.tfevents.9.b").write_text("no events in here, only text")
    imported(run, tmp_path / "beside").told("tfevents.9.b", steps=9)


LOG = "".join(f"step {row['step']} loss {row['loss']}\n" for row in ROWS)


@pytest.mark.parametrize(
    ("content", "what", "count"),
    [
        (LOG + "step 21 loss nan\n", "1 value is NaN", 21),
        (LOG.replace("\n", "\r") + "\n", "", 20),
        (LOG + LOG[-40:].replace("1.0", "1.5"), "written again", 20),
        (LOG.replace("loss 1.5\n", "loss 1.2.3\n"), "", 19),
        ("".join(f"\x1b[32m(pid=1, ip=::1) {line}\x1b[0m\n" for line in LOG.splitlines()), "", 20),
    ],
)
def test_a_console_log_is_read_by_a_pattern(
    content: str, what: str, count: int, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(content.encode())
    answer = imported(run, tmp_path / "a.log", *by_lines(tmp_path))
    answer.told(what, steps=count)
