"""python -m tools.site FOLDER: gather the pages of the site in a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.site.gather import BrokenLink, gather

if __name__ == "__main__":
    try:
        gather(Path(sys.argv[1]))
    except BrokenLink as error:
        sys.exit(f"site: {error}")
