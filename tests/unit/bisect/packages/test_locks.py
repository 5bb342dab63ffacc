"""What lock files of each kind pin, and what of a hostile one is used: names and versions only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from canary.bisect.packages.locks import lines_of_lock
from canary.bisect.packages.pins import Pins, read_pins
from canary.errors import CanaryError, InputError
from tests.unit.comparing import altered, example, write


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
    ("line", "why"),
    [
        ("--index-url https://evil.example/simple", "is an option"),
        ("-r other.txt", "is an option"),
        ("-e git+https://evil.example/x#egg=x", "comes from a URL"),
        ("evil @ https://evil.example/evil.whl", "comes from a URL"),
        ("./evil.whl", "comes from a URL"),
        ("evil; rm -rf /", "is not a requirement"),
        ("evil==1.0 --global-option=x", "is not a requirement"),
        ("$(touch x)==1", "is not a requirement"),
        ("evil>=1.0", "is not pinned"),
        ("evil==1.*", "is not pinned"),
        ("evil===anything", "has no version"),
    ],
)
def test_a_line_that_pins_no_release_is_told_and_not_used(
    tmp_path: Path, line: str, why: str
) -> None:
    found = read(tmp_path, f"trl==1.0\n{line}\n")
    assert as_text(found) == {"trl": "1.0"}
    (told,) = found.left_out
    assert why in told
    assert "left out" in told


def test_a_file_without_a_pin_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pins no package: -e \.: left out"):
        read(tmp_path, "-e .\n")


def test_names_in_control_characters_do_not_reach_a_terminal(tmp_path: Path) -> None:
    (told,) = read(tmp_path, "trl==1.0\n\x1b[2Jcleared>=\x07\n").left_out
    assert told.isprintable()


UV = """
version = 1
requires-python = ">=3.11"
[[package]]
name = "mine"
version = "0.1.0"
source = { editable = "." }
dependencies = [
    { name = "trl" },
    { name = "winonly", marker = "sys_platform == 'win32'" },
    { name = "local" },
]
[package.dev-dependencies]
dev = [{ name = "pytest" }]
[[package]]
name = "trl"
version = "1.15.0"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "torch" }]
[[package]]
name = "torch"
version = "2.13.0"
source = { registry = "https://evil.example/simple" }
[[package]]
name = "winonly"
version = "1"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "pytest"
version = "9.0"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "local"
version = "1"
source = { git = "https://evil.example/x" }
"""


def test_a_uv_lock_counts_for_this_platform(tmp_path: Path) -> None:
    found = read(tmp_path, UV, "uv.lock")
    assert as_text(found) == {"trl": "1.15.0", "torch": "2.13.0", "pytest": "9.0"}
    assert found.left_out == (
        "mine, local: left out, because it comes from a URL, a repository or a folder",
    )


def test_a_poetry_lock(tmp_path: Path) -> None:
    text = """
[[package]]
name = "trl"
version = "1.15.0"
optional = false
markers = "python_version >= '3'"
[[package]]
name = "winonly"
version = "1"
markers = "sys_platform == 'win32'"
[[package]]
name = "named"
version = "1"
[package.source]
type = "legacy"
url = "https://example.org/simple"
reference = "private"
[[package]]
name = "git"
version = "1"
[package.source]
type = "git"
url = "https://example.org/x"
[metadata]
lock-version = "2.1"
"""
    assert pins_of(tmp_path, text, "poetry.lock") == {"trl": "1.15.0", "named": "1"}


def test_a_pylock(tmp_path: Path) -> None:
    text = """
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "trl"
version = "1.15.0"
[[packages]]
name = "winonly"
version = "1"
marker = "sys_platform == 'win32'"
[[packages]]
name = "folder"
directory = { path = "." }
"""
    assert pins_of(tmp_path, text, "pylock.toml") == {"trl": "1.15.0"}


@pytest.mark.parametrize(
    "text",
    [
        "not = [toml",
        "x = " + "[" * 5000 + "]" * 5000,
        "requires-python = '3'",
        "package = 3",
        "package = [3]",
        "lock-version = '1'\npackages = 'x'",
    ],
)
def test_a_broken_toml_lock_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, text, "uv.lock")
    assert "\n" not in str(raised.value)


def test_hostile_values_in_toml_are_no_names_and_versions() -> None:
    text = """
[[package]]
name = "--index-url=x"
version = "1"
[[package]]
name = 3
version = "1"
[[package]]
name = "ok"
version = ["1"]
[[package]]
name = "marked"
version = "1"
markers = "no marker"
[[package]]
name = "sourced"
version = "1"
source = "x"
"""
    lines = lines_of_lock(text, "poetry.lock")
    assert [line.name for line in lines if not line.unused and line.version] == []


def test_a_record_pins_what_its_run_imported(tmp_path: Path) -> None:
    packages = {"torch": "2.13.0+cpu", "trl": None, "rlhf-canary": "0.1.0", "odd": "not a version"}
    made = altered(example(), "env", "packages", to=packages)
    path = write(tmp_path / "run" / "metrics.json", made)
    for name in (path, path.parent):
        found = read_pins(name)
        assert as_text(found) == {"torch": "2.13.0+cpu"}
        assert not found.whole
        assert found.python
        assert found.left_out == ("odd: left out, because it has no version of PEP 440",)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes")
def test_a_pipe_or_a_large_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_pins(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="larger than"):
        read_pins(tmp_path / "large")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not text in UTF-8"):
        read_pins(tmp_path / "bytes")
    with pytest.raises(CanaryError, match="no record or lock file"):
        read_pins(tmp_path / "none.txt")
