"""The watchers of a look: each records the facts of one subject for the rules.

None of them changes the training. An error of one ends that watcher alone, and the record says so.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager
from typing import Any, Protocol

from canary.record.exact import Exact
from canary.record.facts import Facts, Warned
from canary.training.collectors.aside import Wrapping, kept_apart
from canary.training.facts.loaders import LOADERS
from canary.training.facts.texts import Texts
from canary.training.facts.updates import UpdateWatcher

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


class Watcher(Protocol):
    """Watches one subject from the beginning of the look to its end."""

    subject: str
    """What it records, for people: its part of the facts is missing if it fails."""

    def begin(self) -> None:
        """Hook what it watches."""

    def end(self) -> None:
        """Remove all hooks."""

    def tell(self, facts: Facts, exact: Exact) -> None:
        """Add what was seen to the facts; `exact`: the look's other signals."""


class Watching:
    """All watchers of one look."""

    def __init__(self, watchers: list[Watcher]) -> None:
        self._watchers = watchers
        self._failed: dict[str, str] = {}

    def begin(self) -> None:
        """Begin to watch."""
        for one in self._watchers:
            with self._apart(one):
                one.begin()

    def end(self) -> None:
        """Leave nothing behind: the last wrapping goes first."""
        for one in reversed(self._watchers):
            with self._apart(one):
                one.end()

    def told(self, exact: Exact) -> Facts:
        """Return the facts of the look that has ended."""
        facts: Facts = {}
        for one in self._watchers:
            with self._apart(one):
                one.tell(facts, exact)
        if self._failed:
            facts.setdefault("unseen", {}).update(self._failed)
        return facts

    def _apart(self, watcher: Watcher) -> AbstractContextManager[None]:
        return kept_apart(lambda why: self._failed.update({watcher.subject: why}))


def watchers_of(trained: Any) -> list[Watcher]:
    """Return the watchers of a training; `trained`: a trainer, or the parts of a loop."""
    return [UpdateWatcher(trained), LOADERS, Texts(trained), Warnings()]
