"""What an engine in a child process samples is told by a file, and compared."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.training.sampling import engines
from canary.training.sampling.engines import EngineFile, EngineFiles
from canary.training.sampling.samples import UNKNOWN, Sampled
from canary.training.sampling.watch import SamplingWatch
from tests.unit.training.relations.tiny import EOS
from tests.unit.training.sampling.grpo import GROUP, PROMPT, sample, tiny


def drawn(file: EngineFile, number: int, *tokens: int) -> None:
    """Tell a draw of one token per row, with log-probability -1."""
    rows = [Sampled((1,), [], []) for _ in tokens]
    file.drew(number, rows, [(token, -1.0, UNKNOWN) for token in tokens])


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineFile:
    """The file of another process than this one."""
    monkeypatch.setattr(engines, "NAME", "engine-{pid}.jsonl")
    file = EngineFile(tmp_path)
    monkeypatch.setattr("os.getpid", lambda: 7)
    file.began(1, [Sampled((5, 6), [], []), Sampled((5, 7), [], [])])
    monkeypatch.undo()
    return file


def test_rows_are_put_together(tmp_path: Path, child: EngineFile) -> None:
    drawn(child, 1, 8, EOS)
    child.went_on(1, [(0, 8, -1.0, UNKNOWN), (1, EOS, -1.0, UNKNOWN)])
    drawn(child, 1, 9, 4)
    child.went_on(1, [(0, 9, -1.0, UNKNOWN)])  # The second row has ended.
    drawn(child, 1, 3, 4)
    files = EngineFiles(tmp_path)
    one, other = files.taken()
    assert (one.prompt, one.tokens) == ((5, 6), [8, 9, 3])
    assert (other.prompt, other.tokens) == ((5, 7), [EOS])
    assert one.elsewhere


def test_sequences_wait_for_their_update(tmp_path: Path, child: EngineFile) -> None:
    drawn(child, 1, 8, 9)
    files = EngineFiles(tmp_path)
    one, other = files.taken()
    files.trained([one])
    assert files.taken() == [other]


def test_the_file_of_this_process_is_not_read(tmp_path: Path) -> None:
    file = EngineFile(tmp_path)
    file.began(1, [Sampled((5,), [], [])])
    drawn(file, 1, 8)
    assert EngineFiles(tmp_path).taken() == []


@pytest.mark.parametrize(
    "line", [b"{", b"[]\n", b'{"stream": 1, "added": [[9, 1, 0, 0]]}\n', b'{"stream": "x"}\n']
)
def test_an_unreadable_line_is_no_sequence(tmp_path: Path, child: EngineFile, line: bytes) -> None:
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + line)
    assert EngineFiles(tmp_path).taken() == []


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"stream": 1, "prompts": [[1]], "training": false}\n{"stream": 1, "added": [[1e999]]}',
        '{"stream": 1, "drawn": [[1, 0, 0], [1, 0, 0], [1, 0, 0]], "temperature": 1, '
        '"penalised": false, "at_one": false}',
    ],
)
def test_a_childs_file_spoils_no_others(tmp_path: Path, child: EngineFile, line: str) -> None:
    (path,) = tmp_path.iterdir()
    begun = path.read_text()
    drawn(child, 1, 8, 9)
    path.rename(tmp_path / "engine-8.jsonl")
    (tmp_path / "engine-7.jsonl").write_text(begun + line + "\n")
    found = [one for one in EngineFiles(tmp_path).taken() if one.tokens in ([8], [9])]
    assert len(found) == 2


def test_a_pipe_in_place_of_a_file_stops_nothing(tmp_path: Path, child: EngineFile) -> None:
    drawn(child, 1, 8, 9)
    os.mkfifo(tmp_path / "engine-0.jsonl")
    (tmp_path / "engine-1.jsonl").symlink_to("/dev/zero")
    assert len(EngineFiles(tmp_path).taken()) == 2


def test_a_full_file_ends_what_is_told(
    tmp_path: Path, child: EngineFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "MOST_BYTES", 1)
    drawn(child, 1, 8, 9)
    assert EngineFiles(tmp_path).taken() == []


def engine(pipe: Any, sampler: Any) -> None:
    """Answer each batch of prompts with its completions."""
    torch.set_num_threads(1)
    model = tiny().eval()
    while (prompts := pipe.recv()) is not None:
        torch.manual_seed(3)
        pipe.send(sampler(model, prompts))


def test_a_forked_engine_is_followed(tmp_path: Path) -> None:
    watch = SamplingWatch()
    watch.begin(tmp_path)
    try:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        process = context.Process(target=engine, args=(there, sample), daemon=True)
        process.start()
        torch.manual_seed(2)
        prompts = torch.randint(3, 40, (GROUP, PROMPT))
        here.send(prompts)
        ids = here.recv()
        here.send(None)
        process.join()
    finally:
        watch.end()
    found = EngineFiles(tmp_path).taken()
    assert len(found) == GROUP
    for row, one in zip(ids.tolist(), found, strict=True):
        assert [*one.prompt, *one.tokens] == row[: PROMPT + len(one.tokens)]
        assert len(one.tokens) >= 2
        assert all(value < 0 for value in one.log_probs)
