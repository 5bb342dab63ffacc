"""The known faults, tried on the packages of this Python: `python -m bench.stacks_advisories`.

A fault must show if and only if its advisory covers the installed version. Prints one line a fault;
exit code 1 if one does not fit.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from canary.advisories.advisory import advisories
from canary.machine.packages import package_versions
from tests.integration.advisories.reproductions import REPRODUCTIONS, is_affected


def main() -> None:
    """Try each fault."""
    known, wrong = {one.id: one for one in advisories()}, 0
    for name, shows in REPRODUCTIONS.items():
        one, version = known[name], package_versions()[known[name].package]
        if version is None:
            continue
        expected = is_affected(one)
        with tempfile.TemporaryDirectory() as folder:
            try:
                found: object = shows(Path(folder))
            except Exception as error:  # noqa: BLE001 - an old package may lack what it needs
                found = f"{type(error).__name__}: {error}".splitlines()[0][:100]
        fits = found is expected
        wrong += not fits
        words = f"{one.package} {version}: expected {expected}, found {found}"
        print(f"{'ok' if fits else 'WRONG':6}{name:40}{words}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
