"""What a stranger's source may try: run code, read other files, take all memory or time."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from canary.imports import files, series
from canary.imports.readers import csv_file, jsonl, wandb
from tests.unit.imports.broken_inputs import Answer, Run, imported
from tests.unit.imports.running import run as run

ROWS = [{"step": step, "loss": 2.0 - step / 20} for step in range(1, 21)]
BOMB = "a0: &a0 [lol]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)


def mlruns(at: Path, meta: str | None) -> Path:
    """A store with one run; `meta` None writes no `meta.yaml`."""
    folder = at / "mlruns" / "0" / "r1"
    (folder / "metrics").mkdir(parents=True)
    lines = [f"{1_700_000_000_000 + row['step']} {row['loss']} {row['step']}\n" for row in ROWS]
    (folder / "metrics" / "loss").write_text("".join(lines))
    if meta is not None:
        (folder / "meta.yaml").write_text(meta)
    return at / "mlruns"


def fails_well(answer: Answer) -> None:
    assert answer.code == 2, answer.said
    assert "unexpected" not in answer.said
    assert "Traceback" not in answer.said


@pytest.mark.parametrize(
    "meta",
    [
        f"{BOMB}status: *a8\n",
        f"{BOMB}status: {{<<: [*a8, *a8]}}\n",
        f"status: 0x{'f' * 10_000}\n",
        f"status: {'1:' * 20_000}1\n",
        f"status: {'[' * 5_000}\n",
        "status: !!python/object/apply:os.system [exit 3]\n",
        "\0",
        "- 3\n",
    ],
)
def test_a_hostile_meta_yaml_is_no_status(meta: str, run: Run, tmp_path: Path) -> None:
    tracemalloc.start()
    began = time.process_time()
    answer = imported(run, [str(mlruns(tmp_path, meta))], tmp_path / "out")
    assert time.process_time() - began < 20
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    assert answer.code == 0, answer.said
    assert "its status is not known" in answer.said
    assert len(answer.rows) == 20


def test_a_status_is_read_as_before(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    answer = imported(run, [str(mlruns(tmp_path / "a", "status: 3\n"))], tmp_path / "out")
    assert "did not finish" not in answer.said
    (tmp_path / "b").mkdir()
    answer = imported(run, [str(mlruns(tmp_path / "b", "status: 4\n"))], tmp_path / "out")
    assert "its status is FAILED" in answer.said


def test_a_linked_meta_yaml_gives_nothing_away(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("status: TOPSECRET\n")
    source = mlruns(tmp_path, None)
    (source / "0" / "r1" / "meta.yaml").symlink_to(tmp_path / "secret.yaml")
    answer = imported(run, [str(source)], tmp_path / "out")
    assert "TOPSECRET" not in answer.text.upper()
    assert "its status is not known" in answer.said


def mlflow_store(at: Path, started: object, *, name: str = "name text") -> Path:
    path = at / "mlflow.db"
    with sqlite3.connect(path) as store:
        store.execute(f"create table runs (run_uuid text, {name}, start_time, status text)")
        store.execute(
            "create table metrics (key text, value real, timestamp, run_uuid text, step int,"
            " is_nan int)"
        )
        keys = "run_uuid, start_time, status"
        store.execute(f"insert into runs ({keys}) values ('r', ?, 'FINISHED')", (started,))
        store.executemany(
            "insert into metrics values ('loss', ?, 1, 'r', ?, 0)",
            [(row["loss"], row["step"]) for row in ROWS],
        )
    return path


@pytest.mark.parametrize("started", ["abc", b"\xff", None, -1, 1e300])
def test_a_start_of_another_type_is_no_time(started: object, run: Run, tmp_path: Path) -> None:
    answer = imported(run, [str(mlflow_store(tmp_path, started))], tmp_path / "out")
    assert answer.code == 0, answer.said
    assert len(answer.rows) == 20


@pytest.mark.parametrize("named", [[], ["--format", "mlflow"]])
def test_a_column_that_sqlite_computes_is_not_read(
    named: list[str], run: Run, tmp_path: Path
) -> None:
    computed = "name text generated always as (printf('%.*c', 200000000, 'x')) virtual"
    store = mlflow_store(tmp_path, 1, name=computed)
    began = time.process_time()
    fails_well(imported(run, [str(store), *named], tmp_path / "out"))
    assert time.process_time() - began < 5


def test_a_store_of_trackio_with_a_view_is_not_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trackio.db"
    with sqlite3.connect(path) as store:
        store.execute(
            "create view metrics as select 1 as id, 'r' as run_name, '2026-01-01' as timestamp,"
            " 1 as step, '{}' as metrics"
        )
    fails_well(imported(run, [str(path), "--format", "trackio"], tmp_path / "out"))


@pytest.mark.parametrize("place", ["{site}", "../site", ":{site}"])
def test_wandb_of_the_working_folder_does_not_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    site, checkout = tmp_path / "site" / "wandb", tmp_path / "checkout"
    site.mkdir(parents=True)
    checkout.mkdir()
    (site / "__init__.py").touch()
    printed = [json.dumps({"type": "history", "history": {"item": row}}) for row in ROWS]
    (site / "__main__.py").write_text(f"print(*{printed!r}, sep='\\n')")
    (checkout / "wandb.py").write_text("open('ran', 'w')")
    (checkout / "run-1.wandb").touch()
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PYTHONPATH", place.format(site=tmp_path / "site"))
    monkeypatch.setattr(wandb, "_has_store", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    answer = imported(run, ["run-1.wandb"], tmp_path / "out")
    assert not (checkout / "ran").exists()
    assert answer.code == 0, answer.said
    assert len(answer.rows) == 20


def test_a_record_of_wandb_has_a_longest_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prints(words: list[str], stdout: Any, **_: Any) -> Any:
        writing = [sys.executable, "-c", f"print('x' * {files.LONGEST_LINE + 5})"]
        return REAL(writing, stdout=stdout, stderr=subprocess.PIPE, check=False)

    monkeypatch.setattr(wandb, "_has_store", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("subprocess.run", prints)
    (tmp_path / "run-1.wandb").touch()
    fails_well(imported(run, [str(tmp_path / "run-1.wandb")], tmp_path / "out"))


REAL = subprocess.run


def test_the_limit_of_values_acts_while_reading(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_VALUES", 1_000)
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 200_000)
    tracemalloc.start()
    answer = imported(run, [str(tmp_path / "a.jsonl")], tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    fails_well(answer)
    assert "more than 1,000 values" in answer.said


@pytest.mark.parametrize("name", ["columns.json", "header.csv", "narrow.csv", "notes.jsonl"])
def test_what_is_wide_or_long_is_refused_in_time(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MOST_LINES", 20_000)
    monkeypatch.setattr(csv_file, "MOST_LINES", 20_000)
    path = tmp_path / name
    columns = [f"c{number}" for number in range(9_000)]
    if name == "columns.json":
        path.write_text(json.dumps({**{f"c{n}": [1] for n in range(60_000)}, "l": [1] * 60_000}))
    elif name == "header.csv":
        path.write_text(f"{','.join(['c'] * 10_000)}\n" * 100)
    elif name == "narrow.csv":
        path.write_text(",".join(columns) + "\n" + "a\n" * 20_000)
    else:
        path.write_text("1\n" * 20_001)
    began = time.process_time()
    fails_well(imported(run, [str(path)], tmp_path / "out"))
    assert time.process_time() - began < 20


@pytest.mark.parametrize("size", [1e300, 2.0**70, -1.0, 0.0])
def test_an_impossible_size_of_memory_is_left_out(size: float, run: Run, tmp_path: Path) -> None:
    rows = [{**row, "max_memory_bytes": size if row["step"] == 3 else 5e8} for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = imported(run, [str(tmp_path / "a.jsonl")], tmp_path / "out")
    assert answer.code == 0, answer.said
    assert "1 value of memory left out" in answer.said
    assert len(answer.values("peak_bytes")) == 19


def test_nothing_stays_of_an_import_that_breaks(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canary.imports.record.fill", lambda *_: 1 / 0)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    answer = imported(run, [str(tmp_path / "a.jsonl")], tmp_path / "out")
    assert answer.code != 0
    assert not list((tmp_path / "out").glob("import*"))


@pytest.mark.parametrize("pair", ["(.)(.)", "(?P<key>.)", "(?P<value>.)"])
def test_a_pair_that_names_nothing_is_refused(pair: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("step 1 a=1\n" * 5)
    pattern = {"line": "step (?P<step>.) (?P<pairs>.*)", "pair": pair}
    (tmp_path / "p.yaml").write_text(json.dumps({"framework": "mine", "console": [pattern]}))
    answer = imported(
        run, [str(tmp_path / "a.log"), "--preset", str(tmp_path / "p.yaml")], tmp_path / "out"
    )
    fails_well(answer)
    assert "(?P<key>...)" in answer.said


@pytest.mark.parametrize(
    ("dtype", "shape"), [(20, []), (1, [1000, 1000, 1200]), (1, [-1]), (1, [0]), (99, [])]
)
def test_a_scalar_of_tensorboard_that_is_none_is_told(
    dtype: int, shape: list[int], run: Run, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path / "tb"))
    for step in range(1, 11):
        data = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        odd = Summary.Value(tag="odd", metadata=data)
        odd.tensor.dtype = dtype
        odd.tensor.float_val.append(1.0)
        for size in shape:
            odd.tensor.tensor_shape.dim.add(size=size)
        good = Summary.Value(tag="loss", simple_value=1.0 / step)
        writer.add_event(Event(step=step, wall_time=step, summary=Summary(value=[odd, good])))
    writer.close()
    tracemalloc.start()
    answer = imported(run, [str(tmp_path / "tb")], tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    assert answer.code == 0, answer.said
    assert "`odd` is not a number" in answer.said
    assert len(answer.values("loss")) == 10


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json", "a.log"])
def test_an_empty_file_is_said_to_be_empty(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    answer = imported(run, [str(tmp_path / name), "--preset", "trl"], tmp_path / "out")
    fails_well(answer)
    assert f"{name} is empty" in answer.said


def test_an_import_by_hand_keeps_all_curves_for_the_gates_of_a_file(
    run: Run, tmp_path: Path
) -> None:
    folders = []
    for number, score in enumerate((1.0, 0.5)):
        (tmp_path / "a.jsonl").write_text(
            "".join(json.dumps({"step": s, "my_score": score}) + "\n" for s in range(1, 21))
        )
        code, out, _ = run(["import", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / str(number))])
        assert code == 0
        folders.append(out.strip().splitlines()[-1])
    gates = tmp_path / "gates.yaml"
    gates.write_text("metrics: [{name: my_score, limit: 5%, worse: lower}]\n")
    code, out, _ = run(["compare", folders[1], folders[0], "--threshold-file", str(gates)])
    assert code == 1
    assert "my_score" in out.splitlines()[0]
