"""Where a package says what changed: the address in its metadata."""

from __future__ import annotations

import re
from importlib import metadata
from urllib.parse import urlsplit

LABELS = ("releasenotes", "changelog", "changes", "whatsnew", "history", "releases")
"""Known labels of such addresses, the best first. Source: PyPA, Well-known Project URLs."""
LONGEST = 300


def release_notes(package: metadata.Distribution | None) -> str | None:
    """Return the address of a package's release notes, if its metadata names one.

    Only http and https, because people click on it.
    """
    found: dict[str, str] = {}
    for line in (package.metadata.get_all("Project-URL") or []) if package else []:
        label, _, address = str(line).partition(",")
        found.setdefault(re.sub(r"[\W_]", "", label).lower(), address.strip())
    return next((found[label] for label in LABELS if _can_show(found.get(label))), None)


def _can_show(address: str | None) -> bool:
    if not address or len(address) > LONGEST or not address.isprintable() or " " in address:
        return False
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
