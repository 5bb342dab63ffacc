"""The log: what continues, what is refused, and what a crash may leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canary.bisect.journal import LOG, Journal, Row
from canary.errors import CanaryError, MachineError, RecordError, UsageError

ASKED = {"--good": "a" * 40, "--check": "data"}


def row(label: str = "abc", state: int = 5) -> Row:
    return Row(
        stage="search", label=label, state=hex(state), kind="look", run=f"{label}/r", seconds=2.5
    )


def opened(folder: Path, asked: dict[str, str] | None = None) -> Journal:
    return Journal.open(folder, asked or ASKED)


def test_rows_come_back_in_their_order(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(row("one", 1))
    first.add(row("two", 2))
    first.close()
    again = opened(tmp_path)
    assert again.replayed("search", 1, "look") == row("one", 1)
    assert again.seconds == 2.5
    assert again.replayed("search", 2, "look") == row("two", 2)
    assert again.replayed("search", 3, "look") is None
    again.close()


def test_half_a_line_is_dropped_and_its_run_is_repeated(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(row())
    first.close()
    with (tmp_path / LOG).open("ab") as file:
        file.write(b'{"stage": "search", "label": "ab')
    again = opened(tmp_path)
    assert len(again.to_replay) == 1
    again.replayed("search", 5, "look")
    again.add(row("next", 6))
    again.close()
    last = opened(tmp_path)
    assert [one.label for one in last.to_replay] == ["abc", "next"]
    last.close()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (ASKED | {"--good": "b" * 40}, "--good"),
        ({"--good": "a" * 40}, "--check"),
    ],
)
def test_other_arguments_are_refused_in_one_line(
    tmp_path: Path, asked: dict[str, str], name: str
) -> None:
    opened(tmp_path).close()
    with pytest.raises(UsageError, match=f"holds a bisect with another {name}") as refused:
        opened(tmp_path, asked)
    assert "\n" not in str(refused.value)


def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(UsageError, match="another process is bisecting"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    "text",
    [
        "not json\n",
        '{"version": 1, "asked": {"--good": 5}}\n',
        '{"version": 1, "asked": {}}\n{"stage": "search"}\n',
        '{"version": 1, "asked": {}}\n7\n',
        '{"version": 1, "asked": {}}\n{"stage":"last","label":"a","state":"0x1","kind":"look",'
        '"seconds":1e999}\n',
        "\x00\xff\n",
    ],
)
def test_a_log_of_a_stranger_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / LOG).write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match="is not the log of a bisect"):
        opened(tmp_path, {})


def test_no_link_and_no_pipe_is_taken_for_a_log(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / LOG).symlink_to(other)
    with pytest.raises(MachineError, match="cannot write"):
        opened(folder)
    assert other.read_text() == "kept"
    (folder / LOG).unlink()
    os.mkfifo(folder / LOG)
    with pytest.raises((CanaryError, OSError)):
        opened(folder)
