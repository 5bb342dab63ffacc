"""The advisories of the packages that a user names."""

from __future__ import annotations

from collections.abc import Sequence

from canary.advisories.advisory import Advisory, advisories
from canary.errors import UsageError, did_you_mean, nearest


def chosen(packages: Sequence[str]) -> tuple[Advisory, ...]:
    """Return the advisories of these packages; all without a name.

    Raises:
        UsageError: no advisory is about one of them.
    """
    listed = advisories()
    known = sorted({one.package for one in listed})
    for name in packages:
        if name not in known:
            hint = did_you_mean(nearest(name, known), f"there are some of {', '.join(known)}")
            raise UsageError(f"--package {name}: no known fault is about it", hint)
    return tuple(one for one in listed if not packages or one.package in packages)
