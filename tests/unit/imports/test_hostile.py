"""Inputs that no repository can hold: pipes, links, giants, names, files that change."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.imports import reading
from canary.imports.files import files_of
from tests.unit.imports.broken_inputs import BROKEN, Run, expectations, imported, wrong_with
from tests.unit.imports.running import run as run

GOOD = [{"step": step, "loss": 2.0 - step / 20} for step in range(1, 21)]
LINES = "".join(json.dumps(row) + "\n" for row in GOOD)
Made = list[str]
"""The arguments of `canary import`."""


def written(path: Path, text: str = LINES) -> Made:
    path.write_text(text, encoding="utf-8")
    return [str(path)]


def linked(path: Path, target: Path | str) -> Made:
    path.symlink_to(target)
    return [str(path)]


def link_to_good_file(at: Path) -> Made:
    written(at / "good.jsonl")
    return linked(at / "a.jsonl", "good.jsonl")


def folder_named_csv(at: Path) -> Made:
    (at / "metrics.csv").mkdir()
    return [str(at / "metrics.csv")]


def folder_linked_into_itself(at: Path) -> Made:
    shutil.copytree(BROKEN / "tensorboard" / "cut", at / "source")
    (at / "source" / "again").symlink_to(at / "source")
    return [str(at / "source")]


def pipe(at: Path) -> Made:
    os.mkfifo(at / "metrics.jsonl")
    return [str(at / "metrics.jsonl")]


def pipe_in_folder(at: Path) -> Made:
    shutil.copytree(BROKEN / "healthy" / "tensorboard", at / "source")
    os.mkfifo(at / "source" / "events.out.tfevents.1700000000.node1.1.0x")
    return [str(at / "source")]


def a_socket(at: Path) -> Made:
    os.chdir(at)  # the address of a socket has at most 108 characters
    socket.socket(socket.AF_UNIX).bind("metrics.jsonl")
    return ["metrics.jsonl"]


def sparse_giant(at: Path) -> Made:
    with (at / "metrics.jsonl").open("wb") as file:
        file.truncate(8 << 30)
    return [str(at / "metrics.jsonl")]


def giant_line(at: Path) -> Made:
    with (at / "metrics.jsonl").open("w") as file:
        file.write(LINES)
        for _ in range(300):
            file.write("x" * (1 << 20))
    return [str(at / "metrics.jsonl")]


def giant_cell(at: Path) -> Made:
    rows = [f"{r['step']},{r['loss']},{'x' * (200_000 if r['step'] == 7 else 3)}" for r in GOOD]
    return written(at / "metrics.csv", "\n".join(["step,loss,text", *rows]) + "\n")


def many_steps(at: Path) -> Made:
    with (at / "metrics.jsonl").open("w") as file:
        for step in range(1_000_000):
            file.write(f'{{"step": {step}, "loss": 1.5}}\n')
    return [str(at / "metrics.jsonl")]


def many_columns(at: Path) -> Made:
    names = ",".join(f"m{number}" for number in range(20_000))
    rows = [",".join(["1.5"] * 20_000)] * 20
    return written(at / "metrics.csv", "\n".join([names, *rows]) + "\n")


def gzip_bomb(at: Path) -> Made:
    with gzip.open(at / "metrics.jsonl.gz", "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"\0" * (1 << 20))
    return [str(at / "metrics.jsonl.gz")]


def locked_base(at: Path) -> Made:
    shutil.copy2(BROKEN / "trackio" / "resumed.db", at / "store.db")
    held = sqlite3.connect(at / "store.db", isolation_level=None, check_same_thread=False)
    held.execute("BEGIN EXCLUSIVE")
    KEPT.append(held)
    return [str(at / "store.db")]


KEPT: list[Any] = []
"""What must live until the end of the test."""


def growing_file(at: Path) -> Made:
    path = at / "metrics.jsonl"
    written(path)

    def grow() -> None:
        for step in range(21, 200):
            with path.open("a") as file:
                file.write(json.dumps({"step": step, "loss": 0.5}) + "\n")
            time.sleep(0.005)

    threading.Thread(target=grow, daemon=True).start()
    return [str(path)]


def named(name: bytes | str, content: Path | None = None) -> Callable[[Path], Made]:
    def make(at: Path) -> Made:
        path = at / os.fsdecode(name)
        if content is None:
            return written(path)
        shutil.copy2(content, path)
        return [str(path)]

    return make


def option(at: Path) -> Made:
    os.chdir(at)
    written(Path("--format"))
    return ["--format", "jsonl", "--", "--format"]


def patterned(pattern: str, text: str | None = None) -> Callable[[Path], Made]:
    def make(at: Path) -> Made:
        values = {"framework": "mine", "console": [{"line": pattern}]}
        (at / "preset.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        log = BROKEN / "console" / "nan.log"
        if text is not None:
            log = at / "train.log"
            log.write_text(text, encoding="utf-8")
        return [str(log), "--format", "console", "--preset", str(at / "preset.yaml")]

    return make


BINARY = BROKEN / "jsonl" / "binary.jsonl"
MAKERS: dict[str, Callable[[Path], Made]] = {
    "no_such_path": lambda at: [str(at / "metrics.jsonl")],
    "empty_folder": lambda at: [str(at)],
    "folder_named_csv": folder_named_csv,
    "dangling_link": lambda at: linked(at / "metrics.jsonl", at / "gone"),
    "link_to_itself": lambda at: linked(at / "loop.jsonl", "loop.jsonl"),
    "folder_linked_into_itself": folder_linked_into_itself,
    "link_to_good_file": lambda at: (
        written(at / "good.jsonl"),
        linked(at / "a.jsonl", "good.jsonl"),
    )[1],
    "pipe": pipe,
    "pipe_in_folder": pipe_in_folder,
    "socket": a_socket,
    "endless_device": lambda at: ["/dev/zero", "--format", "jsonl"],
    "sparse_giant": sparse_giant,
    "giant_line": giant_line,
    "giant_cell": giant_cell,
    "many_steps": many_steps,
    "many_columns": many_columns,
    "gzip_bomb": gzip_bomb,
    "locked_base": locked_base,
    "growing_file": growing_file,
    "name_not_utf8": named(b"metrics-\xff\xfe.jsonl"),
    "name_with_newline": named("a\nimport succeeded.jsonl", BINARY),
    "name_with_colours": named("\x1b[32mok\x1b[0m.jsonl", BINARY),
    "name_looks_like_an_option": option,
    "standard_input": lambda at: ["-"],
    "bad_pattern": patterned(r"(?P<step>\d+"),
    "pattern_without_groups": patterned("loss"),
    "slow_pattern": patterned(r"(?P<step>(a+)+)$", "step " + "a" * 40 + "!\n"),
}
NOT_MADE = {
    "no_permission": "root may read everything",
    "folder_without_permission": "root may read everything",
    "read_only_wal": "root may write everywhere; wal_left covers the log",
    "file_vanishes": "see test_a_file_that_vanishes",
    "format_does_not_fit": "see test_another_format_than_named",
}


def test_every_input_of_the_list_is_made() -> None:
    assert {case["name"] for case in expectations()["made_at_test_time"]} == {*MAKERS, *NOT_MADE}


SLOW = ("many_steps", "slow_pattern")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in MAKERS]
)
def test_a_hostile_input_is_told_or_refused(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = next(one for one in expectations()["made_at_test_time"] if one["name"] == name)
    began = time.monotonic()
    (tmp_path / "at").mkdir()
    answer = imported(run, MAKERS[name](tmp_path / "at"), tmp_path / "out")
    assert time.monotonic() - began < 60
    assert wrong_with(case, answer) == []


def test_a_file_that_vanishes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    shutil.copytree(BROKEN / "healthy" / "tensorboard", source)
    found = files_of

    def then_remove(*arguments: Any) -> Any:
        files = found(*arguments)
        files[0].path.unlink()
        return files

    monkeypatch.setattr(reading, "files_of", then_remove)
    answer = imported(run, [str(source)], tmp_path / "out")
    assert answer.code == 2
    assert "No such file" in answer.said


@pytest.mark.parametrize(
    ("path", "format_"), [("tensorboard/cut", "csv"), ("csv/resumed.csv", "tensorboard")]
)
def test_another_format_than_named(path: str, format_: str, run: Run, tmp_path: Path) -> None:
    answer = imported(run, [str(BROKEN / path), "--format", format_], tmp_path / "out")
    assert answer.code == 2
    assert not (tmp_path / "out").exists()


def test_the_source_is_unchanged(run: Run, tmp_path: Path) -> None:
    for name in ("trackio/wal_left", "tensorboard/cut", "jsonl"):
        shutil.copytree(BROKEN / name, tmp_path / "source" / name)
    before = contents(tmp_path / "source")
    for file in sorted((tmp_path / "source").rglob("*")):
        imported(run, [str(file)], tmp_path / "out")
    assert contents(tmp_path / "source") == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("line", ["step:1 - " + " - a:1x" * 9_000, "'" * 60_000, "9" * 60_000])
def test_a_log_that_is_slow_for_the_shipped_patterns_ends(
    line: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text(f"{line}\n" * 50, encoding="utf-8")
    began = time.process_time()
    answer = imported(run, [str(tmp_path / "train.log")], tmp_path / "out")
    assert answer.code == 2
    assert time.process_time() - began < 40
