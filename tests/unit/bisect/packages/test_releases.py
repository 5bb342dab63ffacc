"""The versions between two ends, in the order of release."""

from __future__ import annotations

import pytest
from packaging.version import Version

from canary.bisect.packages.search import releases_between

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
