"""What a stranger's source may try: run code, read other files, take all memory or time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from canary.imports import files, series
from canary.imports.readers import csv_file, json_files
from tests.unit.imports.importing import ROWS, Answer, Run, imported, json_lines
from tests.unit.imports.importing import run as run


@contextmanager
def at_most(seconds: float, megabytes: int) -> Iterator[None]:
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        assert time.process_time() - began < seconds
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()


def printing(lines: list[str]) -> str:
    return f"print(*{lines!r}, sep='\\n')"


@pytest.mark.parametrize("place", ["{site}", "../site", ":{site}"])
def test_wandb_of_the_working_folder_does_not_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    site, checkout = tmp_path / "site" / "wandb", tmp_path / "checkout"
    site.mkdir(parents=True)
    checkout.mkdir()
    (site / "__init__.py").touch()
    printed = [json.dumps({"type": "history", "history": {"item": row}}) for row in ROWS]
    printed.append(json.dumps({"type": "exit", "exit": {"exit_code": 1}}))
    (site / "__main__.py").write_text(printing(printed))
    (checkout / "wandb.py").write_text("open('ran', 'w')")
    (checkout / "run-1.wandb").touch()
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PYTHONPATH", place.format(site=tmp_path / "site"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    answer = imported(run, Path("run-1.wandb"))
    assert not (checkout / "ran").exists()
    answer.told("W&B has the exit code 1", steps=20)
    assert answer.record["status"] == "failed"


def test_a_record_of_wandb_has_a_longest_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.run

    def prints(words: list[str], stdout: Any, **_: Any) -> Any:
        writing = [sys.executable, "-c", f"print('x' * {files.LONGEST_LINE + 5})"]
        return real(writing, stdout=stdout, stderr=subprocess.PIPE, check=False)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("subprocess.run", prints)
    (tmp_path / "run-1.wandb").touch()
    imported(run, tmp_path / "run-1.wandb").refused("4 MiB")


def test_the_limit_of_values_acts_while_reading(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_VALUES", 1_000)
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 200_000)
    with at_most(20, 10):
        answer = imported(run, tmp_path / "a.jsonl")
    answer.refused("more than 1,000 values")


@pytest.mark.parametrize("name", ["columns.json", "header.csv", "narrow.csv", "notes.jsonl"])
def test_what_is_wide_or_long_is_refused_in_time(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_files, "MOST_LINES", 20_000)
    monkeypatch.setattr(csv_file, "MOST_LINES", 20_000)
    path = tmp_path / name
    columns = [f"c{number}" for number in range(9_000)]
    if name == "columns.json":
        path.write_text(json.dumps({**{f"c{n}": [1] for n in range(60_000)}, "l": [1] * 60_000}))
    elif name == "header.csv":
        path.write_text(f"{','.join(['c'] * 10_000)}\n" * 25)
    elif name == "narrow.csv":
        path.write_text(",".join(columns) + "\n" + "a\n" * 20_000)
    else:
        path.write_text("1\n" * 20_001)
    began = time.process_time()
    imported(run, path).refused()
    assert time.process_time() - began < 20


@pytest.mark.parametrize("size", [1e300, -1.0, 0.0])
def test_an_impossible_size_of_memory_is_left_out(size: float, run: Run, tmp_path: Path) -> None:
    rows = [{**row, "max_memory_bytes": size if row["step"] == 3 else 5e8} for row in ROWS]
    (tmp_path / "a.jsonl").write_text(json_lines(rows))
    answer = imported(run, tmp_path / "a.jsonl")
    answer.told("1 value of memory left out")
    assert len(answer.values("peak_bytes")) == 19


@pytest.mark.parametrize("pair", ["(.)(.)", "(?P<key>.)", "(?P<value>.)"])
def test_a_pair_that_names_nothing_is_refused(pair: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("step 1 a=1\n" * 5)
    pattern = {"line": "step (?P<step>.) (?P<pairs>.*)", "pair": pair}
    (tmp_path / "p.yaml").write_text(json.dumps({"framework": "mine", "console": [pattern]}))
    answer = imported(run, tmp_path / "a.log", "--preset", str(tmp_path / "p.yaml"))
    answer.refused("(?P<key>...)")


@pytest.mark.parametrize(("dtype", "shape"), [(20, []), (1, [1000, 1000, 1200]), (1, [-1])])
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
    with at_most(60, 100):
        answer: Answer = imported(run, tmp_path / "tb")
    answer.told("`odd` is not a number")
    assert len(answer.values("loss")) == 10
