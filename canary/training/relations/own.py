"""A user's own relations: their files are loaded only here, in the training process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from canary.protocol.failure import one_line
from canary.relations.relation import Group, Outcome, Relation, RelationStatus, outcome

LONGEST = 2_000
"""Characters of a text."""
NO_OUTCOME = "ask returned no outcome; return holds(...), broken(...) or look.compared(...)"


class OwnRelations:
    """The relations of some files, and what the watching process must know about each."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.told: dict[str, dict[str, str]] = {}
        """By id: `group`, `holds`, `likely` and `source`; or a `problem` of the file."""
        for name, file in files.items():
            try:
                module = _loaded(name, Path(file))
                problem = _problem(name, module)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file may raise anything
                problem = f"it cannot be loaded: {one_line(error)}"
            if problem:
                self.told[name] = {"problem": problem[:LONGEST]}
                continue
            self.modules[name] = module
            relation: Relation = module.RELATION
            self.told[name] = {
                key: str(getattr(relation, key))[:LONGEST]
                for key in ("group", "holds", "likely", "source")
            }


def _loaded(name: str, file: Path) -> ModuleType:
    """Run a file as a module; it leaves no bytecode beside the file."""
    module = ModuleType(f"canary_relation_{name}")
    module.__file__ = str(file)
    code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module


def _problem(name: str, module: ModuleType) -> str:
    """Return why a module holds no relation that can be asked; empty if it holds one."""
    relation = getattr(module, "RELATION", None)
    if not isinstance(relation, Relation):
        return "it has no RELATION (RELATION = Relation(...) of canary.relations.relation)"
    if relation.id != name:
        return f"RELATION has the id {relation.id!r}: give it the name of the file, {name!r}"
    if relation.group not in get_args(Group):
        return f"RELATION has the group {relation.group!r}: use one of {', '.join(get_args(Group))}"
    if relation.moment is None or not callable(getattr(module, "ask", None)):
        return "it has no ask(look)"
    if relation.variations or relation.invariants:
        return "a relation of your own has no variations and no invariants: remove them"
    return ""


def checked_outcome(name: str, found: Any) -> Outcome:
    """Return what `ask` of a user's file returned, if it is an outcome."""
    try:
        status, message = found["status"], found["message"]
        if status not in get_args(RelationStatus) or not isinstance(message, str):
            raise TypeError
        tolerance = found.get("tolerance")
        return outcome(
            name,
            status,
            message[:LONGEST],
            str(found.get("place", ""))[:LONGEST],
            list(found.get("values", ()))[:8],
            None if tolerance is None else float(tolerance),
        )
    except Exception:  # noqa: BLE001 - a user's function may return anything
        return outcome(name, "undecided", NO_OUTCOME)
