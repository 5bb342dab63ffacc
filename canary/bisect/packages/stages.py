"""The searches of one bisect, one after the other: each has its own folder, log and answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from canary import __version__
from canary.bisect.answer import Answered, left_behind
from canary.bisect.bisect import engines_of
from canary.bisect.finding import Engines, Ground, Wish, find
from canary.bisect.journal import Journal, digest
from canary.bisect.judging import Judge
from canary.bisect.launches import Launches
from canary.campaign.noise_model import Measured
from canary.machine.packages import package_versions
from canary.runner.display.progress import CampaignPanel


@dataclass
class Stages:
    """Runs searches and keeps their answers."""

    folder: Path
    """Output folder of the bisect."""
    here: Path
    """The user's working directory."""
    wish: Wish
    names: Mapping[str, str]
    """The ends as the user named them: `good`, `bad`."""
    config: Path
    asked: Mapping[str, str]
    """What has to be equal to continue any stage."""
    say: Callable[[str], None]
    panel: CampaignPanel | None
    around: contextlib.ExitStack
    """Closes what the stages open."""
    done: list[tuple[str, Answered]] = field(default_factory=list)
    """Title and result of each search, in their order."""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a sentence for the answer, and say it."""
        self.notes.append(text)
        self.say(f"note: {text}")

    def place(self, title: str) -> Path:
        """Return the folder of a stage."""
        return self.folder / title.replace(" ", "-")

    def journal(self, title: str, parts: object) -> Journal:
        """Open the log of a stage. `parts`: its suspects."""
        asked = {
            **self.asked,
            "list of suspects": digest([title, parts]),
            "set of packages": digest(package_versions()),
            "version of rlhf-canary": __version__,
        }
        journal = Journal.open(self.place(title), asked)
        self.around.callback(journal.close)
        return journal

    def find(
        self, title: str, ground: Ground, journal: Journal, engines: Engines | None = None
    ) -> Answered:
        """Search a ground; raises like `find`."""
        count = ground.bad.bit_count()
        plural = "" if count == 1 else "s"
        self.say(f"searching the {title}: {count} {ground.noun}{plural}")
        found = find(
            ground,
            self._wish(),
            engines or engines_of(self.judge),
            Launches(ground.bench, journal, self.panel),
            self.judge,
            self.say,
        )
        answered = Answered(found, ground, journal, self.names, str(self.config))
        answered = replace(answered, page=left_behind(answered, self.here))
        self.done.append((title, answered))
        return answered

    @cached_property
    def judge(self) -> Judge:
        """Compares the records of all stages."""
        return Judge(self.here, Measured(self.say, None, self.here))

    def _wish(self) -> Wish:
        """Return what to look for next: the check of the first stage, in the time that is left."""
        wish = self.wish
        if self.done:
            wish = replace(wish, check=self.done[0][1].found.check or wish.check)
        if wish.budget_s is None:
            return wish
        spent = sum(answered.found.seconds for _, answered in self.done)
        return replace(wish, budget_s=max(1.0, wish.budget_s - spent))
