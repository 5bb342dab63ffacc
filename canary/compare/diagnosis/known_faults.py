"""Known faults of training packages, and which of them a change of a package brought in or ended.

`known_faults.yaml` is the table. Its rows ask for no setting: versions alone decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence

TABLE = Path(__file__).with_suffix(".yaml")
MOST = 4
"""Faults that a suspect names."""
LONGEST_VERSION = 100
"""Characters of a version; a stranger may have written it."""


@dataclass(frozen=True)
class KnownFault:
    """A row of the table."""

    package: str
    """As a record names it (see `canary.machine.packages`)."""
    versions: SpecifierSet
    """From the first affected version to the one that ended the fault, as PEP 440 writes it."""
    wrong: str
    """What goes wrong, in one or two sentences."""
    remedy: str
    """What to do, in one sentence."""
    source: str
    """Where the fault is described."""
    when: str | None = None
    """What no record tells, as the end of "if ..."."""

    def affects(self, version: str) -> bool | None:
        """Return whether a version has the fault; None for a text that is no version. Local parts
        such as `+cpu` do not count."""
        if len(version) > LONGEST_VERSION:
            return None
        try:
            return self.versions.contains(Version(version), prereleases=True)
        except InvalidVersion:
            return None


@cache
def table() -> Mapping[str, KnownFault]:
    """Return the table that ships, by the faults' names."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows = yaml.load(TABLE.read_text(encoding="utf-8"), loader)
    ranges = {name: SpecifierSet(row["versions"]) for name, row in rows.items()}
    return {name: KnownFault(**row | {"versions": ranges[name]}) for name, row in rows.items()}


def known_faults(facts: Facts) -> tuple[Evidence, ...]:
    """Return the faults of the current packages that the baseline's had not, then the reverse."""
    if not any(c.key.startswith("packages.") for c in facts.report.environment_changes):
        return ()
    before, now = (side.env.get("packages", {}) for side in (facts.before, facts.now))
    began = _evidence(before, now, ended=False)
    return (*began, *_evidence(before, now, ended=True))[:MOST]


def _evidence(
    before: Mapping[str, str | None], now: Mapping[str, str | None], *, ended: bool
) -> Iterator[Evidence]:
    what = "removes a known fault, which changes results" if ended else "has a known fault"
    for name, fault in table().items():
        was, has = before.get(fault.package), now.get(fault.package)
        if was is None or has is None:
            continue
        if (fault.affects(was), fault.affects(has)) == (ended, not ended):
            only_if = f", if {fault.when}" if fault.when else ""
            told = fault.wrong if ended else f"{fault.wrong} {fault.remedy}"
            words = (
                f"{fault.package} {was} -> {has} {what} ({name}){only_if}: {told} {fault.source}"
            )
            yield Evidence("environment", words)
