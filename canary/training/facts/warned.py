"""Keeps the warnings of libraries during a look, even if the training hides them."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from canary.record.exact import Exact
from canary.record.facts import Facts, Warned
from canary.training.collectors.wrapping import Wrapping

LIBRARIES = frozenset(("torch", "transformers", "peft", "trl", "accelerate", "datasets"))
MOST = 32
LONGEST = 300


class Warnings:
    """Notes each text that a library gives to `warnings.warn`, and passes it on."""

    subject = "warnings of libraries"

    def __init__(self) -> None:
        self._wrapping = Wrapping()
        self._seen: dict[str, str] = {}
        """The library, by text."""

    def begin(self) -> None:
        """Wrap `warnings.warn`."""
        self._wrapping.wrap(warnings, "warn", self._around)

    def end(self) -> None:
        """Restore it."""
        self._wrapping.undo()

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Add the warnings, if there were any."""
        if self._seen:
            facts["warned"] = [
                Warned(library=library, text=text) for text, library in self._seen.items()
            ]

    def _around(
        self,
        original: Any,
        message: Any,
        category: Any = None,
        stacklevel: int = 1,
        source: Any = None,
        **more: Any,
    ) -> Any:
        library = str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0]
        if library in LIBRARIES and len(self._seen) < MOST:
            self._seen.setdefault(str(message)[:LONGEST], library)
        if more.get("skip_file_prefixes"):  # Python then skips the caller at least
            stacklevel = max(2, stacklevel)
        # Two frames lie between: the warning is shown where it would be without them.
        return original(message, category, stacklevel + 2, source, **more)
