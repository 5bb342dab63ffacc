"""The section `check` of a config names relations: they must exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from canary.config.sections import CheckConfig
from canary.config.source import Origins
from canary.errors import ConfigError, did_you_mean, nearest

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MOST_FILES = 50


def own_names(check: CheckConfig) -> dict[str, str]:
    """Return the files of the user's own relations by id: the name of the file without `.py`."""
    return {PurePath(file).stem: file for file in check.relations}


def known_relations(check: CheckConfig) -> tuple[str, ...]:
    """Return the ids of all relations that can be asked, in the order of the report."""
    from canary.relations import RELATIONS  # Most configs name none.

    return (*RELATIONS, *own_names(check))


def unknown_relation(names: Iterable[str], known: Iterable[str]) -> tuple[str, str | None] | None:
    """Return the first name that no relation has, with a hint; None if all are known."""
    known = tuple(known)
    wrong = next((name for name in names if name not in known), None)
    if wrong is None:
        return None
    return wrong, did_you_mean(nearest(wrong, known), "canary check --list names all")


def wrong_file(files: Iterable[str]) -> tuple[str, str] | None:
    """Return what is wrong with the first file that cannot name a relation, and what to do."""
    from canary.relations import RELATIONS

    seen: set[str] = set()
    for file in files:
        path = PurePath(file)
        if path.suffix != ".py" or not NAME.fullmatch(path.stem):
            how = "name a Python file of lower-case letters, digits and _"
            return f"{file!r} cannot name a relation", how
        if path.stem in RELATIONS:
            return f"{file!r} has the name of a built-in relation", "rename the file"
        if path.stem in seen:
            return f"two files have the name {path.name!r}", "rename one of them"
        seen.add(path.stem)
        if len(seen) > MOST_FILES:
            return f"more than {MOST_FILES} files", "join some of them"
    return None


def check_relations(check: CheckConfig, origins: Origins, source: str) -> None:
    """Refuse names that no relation has.

    Raises:
        ConfigError: names the key, the relation and a similar one.
    """
    wrong = wrong_file(check.relations) if check.relations else None
    if wrong is not None:
        place = origins.get("check.relations", source)
        message = f"check.relations in {place}: {wrong[0]}"
        raise ConfigError(message, wrong[1], file=source, key="check.relations")
    for key in ("only", "skip"):
        names = getattr(check, key)
        unknown = unknown_relation(names, known_relations(check)) if names else None
        if unknown is not None:
            dotted = f"check.{key}"
            place = origins.get(dotted, source)
            message = f"{dotted} in {place}: there is no relation {unknown[0]!r}"
            raise ConfigError(message, unknown[1], file=source, key=dotted)
