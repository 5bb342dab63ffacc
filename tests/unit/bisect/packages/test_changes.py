"""What differs between two ends: a record does not say what it does not name."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from canary.bisect.packages import changes
from canary.bisect.packages.changes import changes_between
from canary.bisect.packages.pins import Pins
from canary.errors import UsageError


def pins(versions: dict[str, str], name: str = "x", **rest: object) -> Pins:
    made = {package: Version(version) for package, version in versions.items()}
    return Pins(Path(name), made, **rest)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "installed", lambda: {"here": Version("1")})


def test_added_and_removed_packages_are_changes() -> None:
    found = changes_between(pins({"a": "1", "b": "1"}), pins({"a": "2", "c": "1"}))
    assert [str(one) for one in found.changed] == [
        "a 1 -> 2",
        "b 1 -> not installed",
        "c not installed -> 1",
    ]


def test_versions_that_differ_in_writing_alone_are_equal() -> None:
    with pytest.raises(UsageError, match="have the same packages"):
        changes_between(pins({"a": "1.0"}), pins({"a": "1.0.0"}))


def test_a_record_names_few_packages_so_others_are_no_change() -> None:
    record = pins({"trl": "1"}, whole=False, absent=frozenset({"peft"}))
    found = changes_between(record, pins({"trl": "2", "peft": "1", "other": "4"}))
    assert [one.name for one in found.changed] == ["peft", "trl"]
    assert found.fixed == {"other": Version("4")}
    assert "1 packages are in one list" in found.notes[0]


def test_another_python_is_told() -> None:
    found = changes_between(
        pins({"a": "1"}, "g", python="3.9.1"), pins({"a": "2"}, "b", python="3.10.2")
    )
    (note,) = found.notes
    assert "g had 3.9.1 and b had 3.10.2" in note
    assert "cannot be searched" in note
