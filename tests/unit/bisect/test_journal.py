"""The log: what continues, what is refused, and what a crash may leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.bisect.journal import LOG, Journal, Row
from canary.errors import RecordError, UsageError

ASKED = {"--good": "a" * 40, "--check": "data"}


def row(label: str = "abc", state: int = 5) -> Row:
    return Row(
        stage="search", label=label, state=hex(state), kind="look", run=f"{label}/r", seconds=2.5
    )


def opened(folder: Path, asked: dict[str, str] | None = None) -> Journal:
    return Journal.open(folder, asked or ASKED)


def test_rows_come_back_one_by_one(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for one in (row("one", 1), row("two", 2), row("again", 1)):
        first.add(one)
    first.close()
    again = opened(tmp_path)
    assert again.logged("search", 2, "look") == row("two", 2)
    assert len(again.waiting) == 2
    assert again.spent_s == 0.0
    assert again.logged("search", 1, "look") == row("one", 1)
    assert again.logged("search", 1, "look") == row("again", 1)
    assert again.logged("search", 1, "look") is None
    assert again.logged("last", 2, "look") is None
    again.close()


def test_half_a_line_is_dropped_and_its_run_is_repeated(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(row())
    first.close()
    with (tmp_path / LOG).open("ab") as file:
        file.write(b'{"stage": "search", "label": "ab')
    again = opened(tmp_path)
    assert again.waiting == [row()]
    again.add(row("next", 6))
    again.close()
    last = opened(tmp_path)
    assert [one.label for one in last.waiting] == ["abc", "next"]
    last.close()


def test_what_failed_for_this_machine_is_forgotten(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(row())
    first.forget()
    first.close()
    again = opened(tmp_path)
    assert again.waiting == []
    again.close()


@pytest.mark.parametrize(
    ("asked", "name"), [(ASKED | {"--good": "b" * 40}, "--good"), ({"--good": "a" * 40}, "--check")]
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
        "7\n",
        '{"--good": "a"}\n{"stage": "search"}\n',
        '{"--good": "a"}\n7\n',
        '{}\n{"stage":"last","label":"a","state":"0x1","kind":"look","seconds":1e999}\n',
        "\x00\xff\n",
    ],
)
def test_a_log_of_a_stranger_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / LOG).write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match="is not the log of a bisect"):
        opened(tmp_path, {})
