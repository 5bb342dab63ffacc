"""Adds the installed trl's arguments to the list of all known arguments.

`python -m bench.stacks_arguments` adds the fields of every config class to
canary/training/known_arguments.json. An argument that only another version of trl has is then not
reported as a typo. `nox -s stacks -- --write` runs it in each environment.
"""

from __future__ import annotations

import json

from canary.config.trainers import TRAINERS
from canary.errors import ConfigError
from canary.training import adapt

OF_TRL = tuple(row for row in TRAINERS.values() if not row.own_loop)


def installed_arguments() -> dict[str, frozenset[str]]:
    """Return the argument names of each config class that the installed trl offers."""
    found = {}
    for row in OF_TRL:
        try:
            config, _ = adapt.offered(row.title, row.takes)
        except ConfigError:
            continue
        found[config.__name__] = adapt.field_names(config)
    return found


def main() -> None:
    """Update the list with the installed arguments."""
    names = [f"{row.title}Config" for row in OF_TRL]
    known = {name: set(adapt.known_arguments(name)) for name in names}
    for name, arguments in installed_arguments().items():
        known[name] |= arguments
    every = set.intersection(*known.values())
    lists = {"every": sorted(every)}
    lists |= {name: sorted(arguments - every) for name, arguments in known.items()}
    adapt.KNOWN_ARGUMENTS.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
