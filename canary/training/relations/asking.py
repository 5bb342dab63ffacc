"""Asks the wanted relations at their moments, and keeps the answers."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch

from canary.protocol.failure import one_line
from canary.relations import MODULES
from canary.relations.relation import CannotAsk, Moment, Outcome, outcome
from canary.training.relations.looking import TrainingLook
from canary.training.relations.own import OwnRelations, checked_outcome

SEVERAL_RANKS = "this relation is tested on one rank only"
UNSEEN = "no call of the model with a training loss was seen"

Ask = Callable[[TrainingLook], Outcome]


class Answers:
    """The answers of one training."""

    def __init__(self, wanted: Sequence[str], files: Mapping[str, str]) -> None:
        """`files`: the user's own relations."""
        self.own = OwnRelations(files)
        self._modules = MODULES | self.own.modules
        self.wanted = [
            name
            for name in wanted
            if name in self._modules and self._modules[name].RELATION.moment is not None
        ]
        self._found: dict[str, Outcome] = {}
        self.failed = ""
        """Why the training could not be looked at further."""

    def ask(self, moment: Moment, look: TrainingLook, only: Sequence[str] | None = None) -> None:
        """Ask the relations of a moment, or `only` some."""
        for name in self.wanted:
            ask = _at(self._modules[name], moment)
            if ask is None or (only is not None and name not in only):
                continue
            found = _asked(name, ask, look)
            self._keep(name, checked_outcome(name, found) if name in self.own.modules else found)
            look.model.eval()

    def _keep(self, name: str, found: Outcome) -> None:
        """Keep an answer. Of several, the broken one counts, then the first that says something."""
        before = self._found.get(name)
        says_more = before is None or (
            before["status"] == "not applicable" and found["status"] != "not applicable"
        )
        if says_more or found["status"] == "broken":
            self._found[name] = found

    def all(self) -> list[Outcome]:
        """Return one answer per wanted relation."""
        why = self.failed or UNSEEN
        return [self._found.get(name) or outcome(name, "undecided", why) for name in self.wanted]


def _at(module: ModuleType, moment: Moment) -> Ask | None:
    """Return what a relation asks at a moment. One that asks before the first update may have
    `ask_at_end` too."""
    name = "ask" if module.RELATION.moment == moment else "ask_at_end" if moment == "last" else ""
    found: Ask | None = getattr(module, name, None) if name else None
    return found


def _asked(name: str, ask: Ask, look: TrainingLook) -> Outcome:
    if several_ranks():
        return outcome(name, "not applicable", SEVERAL_RANKS)
    try:
        return ask(look)
    except CannotAsk as why:
        return outcome(name, "not applicable", str(why))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may refuse
        words = f"the test failed: {one_line(error)}{_line_in(ask, error)}"
        return outcome(name, "undecided", words)


def _line_in(ask: Ask, error: BaseException) -> str:
    """Return the line of the relation's own file that failed."""
    file = getattr(getattr(ask, "__code__", None), "co_filename", "")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if one.filename == file]
    return f" (at {Path(file).name}:{lines[-1]})" if lines else ""


def several_ranks() -> bool:
    """Whether this process is one of several ranks."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return several and torch.distributed.get_world_size() > 1
