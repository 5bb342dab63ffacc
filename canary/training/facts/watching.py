"""The watchers of a look: each records the facts of one subject for the rules.

None of them changes the training. An error of one ends that watcher alone, and the record says so.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from canary.record.exact import Exact
from canary.record.facts import Facts
from canary.training.collectors.uncounted import kept_apart
from canary.training.facts.loaders import LOADERS
from canary.training.facts.texts import Texts
from canary.training.facts.updates import UpdateWatcher
from canary.training.facts.warned import Warnings


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
