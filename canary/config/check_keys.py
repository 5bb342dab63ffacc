"""The section `check` of a config names relations: they must exist."""

from __future__ import annotations

from collections.abc import Iterable

from canary.config.sections import CheckConfig
from canary.config.source import Origins
from canary.errors import ConfigError, did_you_mean, nearest


def known_relations(check: CheckConfig) -> tuple[str, ...]:
    """Return the ids of all relations that can be asked, in the order of the report."""
    from canary.relations import RELATIONS  # Most configs name none.

    return tuple(RELATIONS)


def unknown_relation(names: Iterable[str], known: Iterable[str]) -> tuple[str, str | None] | None:
    """Return the first name that no relation has, with a hint; None if all are known."""
    known = tuple(known)
    wrong = next((name for name in names if name not in known), None)
    if wrong is None:
        return None
    return wrong, did_you_mean(nearest(wrong, known), "canary check --list names all")


def check_relations(check: CheckConfig, origins: Origins, source: str) -> None:
    """Refuse names that no relation has.

    Raises:
        ConfigError: names the key, the relation and a similar one.
    """
    for key in ("only", "skip"):
        names = getattr(check, key)
        wrong = unknown_relation(names, known_relations(check)) if names else None
        if wrong is not None:
            dotted = f"check.{key}"
            place = origins.get(dotted, source)
            message = f"{dotted} in {place}: there is no relation {wrong[0]!r}"
            raise ConfigError(message, wrong[1], file=source, key=dotted)
