"""A user's own relations, seen from the process that watches: it never runs their files.

The name of a file is the relation's id. What the relation says about itself comes from the training
process, which loads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from canary.check.schema import LONGEST, StoredRelation
from canary.config.check_keys import own_names, wrong_file
from canary.config.load import LoadedConfig
from canary.errors import UsageError
from canary.record import jsonio
from canary.relations.relation import Outcome, Relation, outcome

LARGEST = 1 << 20
"""Bytes of a file."""
HELP = "docs/relations.md says how to write one"


def with_files(loaded: LoadedConfig, files: Sequence[Path]) -> LoadedConfig:
    """Return a config that also names these files.

    Raises:
        UsageError: a name cannot be that of a relation.
    """
    section = loaded.config.check
    every = (*section.relations, *map(str, files))
    wrong = wrong_file(every)
    if wrong is not None:
        raise UsageError(f"--relations {wrong[0]}", wrong[1])
    check = section.model_copy(update={"relations": every})
    return replace(loaded, config=loaded.config.model_copy(update={"check": check}))


def own_files(loaded: LoadedConfig, wanted: Sequence[str]) -> dict[str, str]:
    """Return the absolute paths of the wanted relations' files, by id.

    Raises:
        UsageError: one is missing, too large or no plain file.
    """
    found = {}
    for name, file in own_names(loaded.config.check).items():
        if name not in wanted:
            continue
        try:
            jsonio.open_regular(Path(file), LARGEST).close()
        except (OSError, ValueError) as error:
            place = loaded.origins.get("check.relations", "--relations")
            why = getattr(error, "strerror", None) or str(error)
            message = f"check.relations in {place}: cannot read {file!r}: {why}"
            raise UsageError(message, HELP) from error
        found[name] = str(Path(file).absolute())
    return found


def told_relation(name: str, file: str, told: Mapping[str, Any]) -> Relation:
    """Return what the training process told about a relation, with limits on each text.

    Raises:
        UsageError: the file holds no relation.
    """
    found = told.get(name) if isinstance(told, Mapping) else None
    if not isinstance(found, Mapping):
        return Relation(name, "same work", f"what {Path(file).name} says", "", "")
    if found.get("problem"):
        raise UsageError(f"{file}: {str(found['problem'])[:LONGEST]}", HELP)
    try:
        return StoredRelation(
            relation=name,
            status="undecided",
            group=found.get("group", "same work"),
            holds_if=str(found.get("holds", ""))[:LONGEST],
            likely=str(found.get("likely", ""))[:LONGEST],
            source=str(found.get("source", ""))[:LONGEST],
        ).described()
    except ValidationError as error:
        raise UsageError(f"{file}: RELATION is no relation", HELP) from error


def told_outcomes(found: Sequence[object], wanted: Sequence[str]) -> dict[str, Outcome]:
    """Return what the training process told about the wanted relations, by id."""
    named = {
        str(one["relation"]): one
        for one in found
        if isinstance(one, Mapping) and str(one.get("relation")) in wanted
    }
    return {name: told_outcome(name, one) for name, one in named.items()}


def told_outcome(name: str, found: Mapping[str, Any]) -> Outcome:
    """Return what the training process told about a relation, if it is an outcome. Its texts may
    hold names and data of the user, of any length: they must not hide that it is broken."""
    try:
        one = StoredRelation.model_validate({key: _cut(value) for key, value in found.items()})
    except ValidationError:
        return outcome(name, "undecided", "the training process gave no readable result")
    return outcome(name, one.status, one.message, one.place, one.values, one.tolerance)


def _cut(value: Any) -> Any:
    """Return a text with the length and the characters that a record may have."""
    if not isinstance(value, str):
        return value
    return value[:LONGEST].encode("utf-8", "replace").decode("utf-8")
