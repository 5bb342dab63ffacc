"""The command line as a user of the planted projects has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.integration.conftest import Finished, canary

ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    "OMP_NUM_THREADS": "1",
    "PIP_NO_INDEX": "1",
    "UV_NO_INDEX": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""`python` is the one with torch; nothing comes from an index."""


def here(*arguments: str, cwd: Path, timeout: float, wheels: Path | None = None) -> Finished:
    """`canary` in a folder. `wheels`: where packages come from."""
    links = {"PIP_FIND_LINKS": str(wheels)} if wheels else {}
    return canary(*arguments, cwd=cwd, timeout=timeout, more={**ENVIRONMENT, **links})
