"""Sources that want to harm: pipes, links, giants, names, files that change, slow patterns."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.imports import reading
from canary.imports.files import files_of
from tests.unit.imports.importing import ROWS, Run, imported, json_lines
from tests.unit.imports.importing import run as run

LINES = json_lines()
Made = tuple[Path, str]
"""A source, and what must be said of it; empty if it is read."""


def written(path: Path, text: str = LINES) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def linked(path: Path, target: Path | str) -> Path:
    path.symlink_to(target)
    return path


def pipe(at: Path) -> Path:
    os.mkfifo(at / "metrics.jsonl")
    return at / "metrics.jsonl"


def a_socket(at: Path) -> Path:
    os.chdir(at)  # the address of a socket has at most 108 characters
    socket.socket(socket.AF_UNIX).bind("metrics.jsonl")
    return at / "metrics.jsonl"


def sparse_giant(at: Path) -> Path:
    with (at / "metrics.jsonl").open("wb") as file:
        file.truncate(8 << 30)
    return at / "metrics.jsonl"


def giant_cell(at: Path) -> Path:
    rows = [f"{r['step']},{r['loss']},{'x' * (5 << 20)}" for r in ROWS[:2]]
    return written(at / "metrics.csv", "\n".join(["step,loss,text", *rows]) + "\n")


def many_steps(at: Path) -> Path:
    rows = "".join(f'{{"step": {step}, "loss": 1.5}}\n' for step in range(60_000))
    return written(at / "metrics.jsonl", rows)


def gzip_bomb(at: Path) -> Path:
    (at / "metrics.jsonl.gz").write_bytes(gzip.compress(bytes(64 << 20), 1))
    return at / "metrics.jsonl.gz"


def in_a_folder(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """Make something beside a good file, and name the folder."""

    def made(at: Path) -> Path:
        (at / "source").mkdir()
        make(at / "source").rename(at / "source" / "odd.jsonl")
        written(at / "source" / "good.jsonl")
        return at / "source"

    return made


def growing(at: Path) -> Path:
    path = written(at / "metrics.jsonl")

    def grow() -> None:
        for step in range(21, 200):
            with path.open("a") as file:
                file.write(json.dumps({"step": step, "loss": 0.5}) + "\n")
            time.sleep(0.005)

    threading.Thread(target=grow, daemon=True).start()
    return path


SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no_such_path": (lambda at: at / "metrics.jsonl", "does not exist"),
    "empty_folder": (lambda at: at, "has no files"),
    "dangling_link": (lambda at: linked(at / "a.jsonl", at / "gone"), "does not exist"),
    "link_to_itself": (lambda at: linked(at / "a.jsonl", "a.jsonl"), "does not exist"),
    "link_in_folder": (in_a_folder(lambda at: linked(at / "a", "/etc/passwd")), ""),
    "folder_in_itself": (in_a_folder(lambda at: linked(at / "a", at)), ""),
    "pipe": (pipe, "is not a regular file or a folder"),
    "pipe_in_folder": (in_a_folder(pipe), ""),
    "socket": (a_socket, "is not a regular file or a folder"),
    "endless_device": (lambda at: Path("/dev/zero"), "is not a regular file or a folder"),
    "sparse_giant": (sparse_giant, "metrics.jsonl"),
    "giant_line": (lambda at: written(at / "a.jsonl", "x" * (5 << 20)), "a.jsonl"),
    "giant_cell": (giant_cell, "is not CSV"),
    "many_steps": (many_steps, "more than 50,000 steps"),
    "many_columns": (lambda at: written(at / "a.csv", "m," * 20_000), "more than 10,000 columns"),
    "gzip_bomb": (gzip_bomb, "no known format"),
    "growing": (growing, ""),
    "name_not_utf8": (lambda at: written(at / os.fsdecode(b"metrics-\xff.jsonl")), ""),
    "name_with_newline": (lambda at: written(at / "a\nread ok.jsonl", "x\n"), "no metric"),
    "name_with_colours": (lambda at: written(at / "\x1b[32mok\x1b[0m.jsonl", "x\n"), "no metric"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_hostile_source_is_told_or_refused(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "at").mkdir()
    make, why = SOURCES[name]
    source = make(tmp_path / "at")
    began = time.monotonic()
    code, _, err = run(["import", "-o", str(tmp_path / "out"), str(source)])
    assert time.monotonic() - began < 30
    assert code == (2 if why else 0), err
    assert why in err
    assert "Traceback" not in err
    assert "unexpected" not in err
    assert all(char.isprintable() or char == "\n" for char in err)
    if why:
        assert len(err.strip().splitlines()) == 1
        assert not (tmp_path / "out").exists()
    elif source.is_dir():
        assert "was not followed" in err


def test_a_name_that_looks_like_an_option_is_a_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("--format"))
    assert run(["import", "--format", "jsonl", "-o", "out", "--", "--format"])[0] == 0


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?P<step>\d+", LINES),
        ("loss", "loss\n"),
        pytest.param(r"(?P<step>(a+)+)$", "step " + "a" * 40 + "!\n", marks=pytest.mark.slow),
    ],
)
def test_a_bad_pattern_is_refused(pattern: str, text: str, run: Run, tmp_path: Path) -> None:
    values = {"framework": "mine", "console": [{"line": pattern}]}
    preset = written(tmp_path / "preset.yaml", yaml.safe_dump(values))
    log = written(tmp_path / "train.log", text)
    imported(run, log, "--format", "console", "--preset", str(preset)).refused()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["step:1 - " + " - a:1x" * 9_000, "'" * 60_000, "9" * 60_000])
def test_a_log_that_is_slow_for_the_shipped_patterns_ends(
    line: str, run: Run, tmp_path: Path
) -> None:
    log = written(tmp_path / "train.log", f"{line}\n" * 50)
    began = time.process_time()
    imported(run, log, "--preset", "verl").refused()
    assert time.process_time() - began < 40


def test_a_file_that_vanishes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = files_of

    def then_remove(*arguments: Any) -> Any:
        files = found(*arguments)
        files[0].path.unlink()
        return files

    monkeypatch.setattr(reading, "files_of", then_remove)
    source = written(tmp_path / "metrics.jsonl")
    imported(run, source, "--format", "jsonl").refused("No such file")


def test_another_format_than_named_is_refused(run: Run, tmp_path: Path) -> None:
    source = written(tmp_path / "metrics.log", "nothing of this format\n" * 9)
    for form in ("csv", "tensorboard", "json", "wandb"):
        imported(run, source, "--format", form).refused()


def test_the_source_is_unchanged(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a.jsonl", "a.csv", "a.json", "events.out.tfevents.1.a", "a.log"):
        written(source / name)
    shutil.copytree(source, tmp_path / "before")
    for file in sorted(source.iterdir()):
        run(["import", "-o", str(tmp_path / "out"), str(file)])
    assert {path.name: path.read_bytes() for path in source.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "before").iterdir()
    }
