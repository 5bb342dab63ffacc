"""The versions of one package between two ends."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version


def releases_between(good: Version, bad: Version, known: Sequence[Version]) -> list[Version]:
    """Return the versions from the good to the bad end, both included, in the order of release.

    Pre-releases count only if an end is one. Builds such as `+cpu` count only if an end has the
    same: builds of one version do not follow each other. Nightly versions carry
    their date, so the order of versions is that of dates.

    Args:
        good: version of the good end.
        bad: version of the bad end; it may be the older one.
        known: versions that can be installed here.
    """
    low, high = sorted((good, bad))
    pre = good.is_prerelease or bad.is_prerelease
    builds = {good.local, bad.local}
    between: dict[str, Version] = {}
    for version in sorted(known):
        if low < version < high and (pre or not version.is_prerelease) and version.local in builds:
            between.setdefault(version.public, version)
    ends = {good.public, bad.public}
    inside = [version for public, version in between.items() if public not in ends]
    return [good, *(inside if good < bad else inside[::-1]), bad]
