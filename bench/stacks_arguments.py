"""Adds the installed trl's arguments to the list of those that any stack knows.

`python -m bench.stacks_arguments`, which `nox -s stacks -- --write` runs in each environment, adds
the names of every config class to canary/training/known_arguments.json: what one version lacks and
another has is no typing error in a config.
"""

from __future__ import annotations

import json

from canary.errors import ConfigError
from canary.training import adapt

STEMS = ("SFT", "DPO", "Reward", "KTO", "GRPO", "RLOO", "ORPO", "CPO")
ONLINE = ("GRPO", "RLOO")


def installed_arguments() -> dict[str, frozenset[str]]:
    """Names by config class, of the classes that the installed trl offers."""
    found = {}
    for stem in STEMS:
        try:
            config, _ = adapt.offered(stem, "reward_funcs" if stem in ONLINE else "model")
        except ConfigError:
            continue
        found[config.__name__] = adapt.field_names(config)
    return found


def main() -> None:
    """Writes the list anew, with what it had and what is installed."""
    known = {name: set(adapt.known_arguments(name)) for name in (f"{stem}Config" for stem in STEMS)}
    for name, arguments in installed_arguments().items():
        known[name] |= arguments
    every = set.intersection(*known.values())
    lists = {"every": sorted(every)}
    lists |= {name: sorted(arguments - every) for name, arguments in known.items()}
    adapt.KNOWN_ARGUMENTS.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
