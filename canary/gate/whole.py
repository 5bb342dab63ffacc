"""Both halves in one process, for repositories whose authors are all trusted."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from dataclasses import replace

from canary.errors import EXIT_OK
from canary.gate.answering import answer, pending, read_event
from canary.gate.place import set_up
from canary.gate.settings import ReportSettings, TrainSettings
from canary.gate.training import train
from canary.gate.world import World
from canary.publish.event import Kind

SECRET = re.compile(
    r"(^|_)((ACCESS|API|AUTH|PRIVATE|SSH|SIGNING|ENCRYPTION|DEPLOY)?(TOKEN|SECRETS?|KEYS?|PAT|AUTH)"
    r"|PASS(WORD|WD|PHRASE)?|PWD|CREDENTIALS?|CREDS?|BEARER|JWT|DSN|COOKIES?|NETRC|WEBHOOK"
    r"|CONNECTION_STRING"
    r"|(DATABASE|DB|REDIS|MONGO|MONGODB|POSTGRES|POSTGRESQL|PG|MYSQL|AMQP|RABBITMQ|BROKER)_UR[IL]"
    r")(_|$)",
    re.IGNORECASE,
)
"""Names that belong to secrets, read word by word; scripts/run.sh has the same."""
RUNNERS = re.compile(r"^ACTIONS_|^GITHUB_(ENV|OUTPUT|PATH|STATE|STEP_SUMMARY)$")
"""By which a step speaks to its runner."""


def whole(
    training: TrainSettings,
    settings: ReportSettings,
    world: World,
    environ: MutableMapping[str, str],
    say: Callable[[str], None],
) -> int:
    """Pending status, setup, training, report. Returns the exit code of the verdict.

    Raises:
        UsageError: an event that the gate refuses, or an input that cannot be.
    """
    intent = read_event(settings)
    if intent.kind in (Kind.IGNORE, Kind.ANNOUNCE):
        return answer(settings, world)
    pending(settings, world)
    without_secrets(environ)
    base = intent.base_sha if intent.kind is Kind.JUDGE else ""
    training = replace(training, base_sha=training.base_sha or base, records=settings.records)
    code = set_up(training, environ, say) if training.setup else EXIT_OK
    if code == EXIT_OK:
        train(training, environ, say)
    return answer(settings, world)


def without_secrets(environ: MutableMapping[str, str]) -> None:
    """Takes tokens, and the files by which a step speaks to its runner, out of an environment that
    the training inherits."""
    for name in [name for name in environ if SECRET.search(name) or RUNNERS.search(name)]:
        if name != "PWD":
            del environ[name]
