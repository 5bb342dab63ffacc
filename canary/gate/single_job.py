"""Both halves in one process, for repositories whose authors are all trusted."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from dataclasses import replace

from canary.config.secret_names import is_secret_variable
from canary.errors import EXIT_OK
from canary.gate.context import World
from canary.gate.failsafe import Target, answered
from canary.gate.inputs import ReportSettings, TrainSettings
from canary.gate.report_job import announced, concluded, read_event
from canary.gate.run_job import train
from canary.gate.workspace import set_up
from canary.github.event import Kind

RUNNERS = re.compile(r"^ACTIONS_|^GITHUB_(ENV|OUTPUT|PATH|STATE|STEP_SUMMARY)$")
"""By which a step speaks to its runner."""


def whole(
    read: Callable[[], TrainSettings],
    settings: ReportSettings,
    world: World,
    environ: MutableMapping[str, str],
    say: Callable[[str], None],
) -> int:
    """Pending status, setup, training, report. Returns the exit code of the verdict.

    `read`: the inputs of the half that trains; one that is refused is told on the commit too.

    Raises:
        UsageError: an event that the gate refuses, or an input that cannot be.
        MachineError: as `answer`.
    """
    target = Target(settings, world, read_event(settings, world))
    return answered(target, lambda: _whole(target, read, environ, say))


def _whole(
    target: Target,
    read: Callable[[], TrainSettings],
    environ: MutableMapping[str, str],
    say: Callable[[str], None],
) -> int:
    intent, training = target.intent, read()
    announced(target)
    if intent.kind in (Kind.IGNORE, Kind.ANNOUNCE):
        return EXIT_OK
    without_secrets(environ)
    base = intent.base_sha if intent.kind is Kind.JUDGE else ""
    records = target.settings.records
    training = replace(training, base_sha=training.base_sha or base, records=records)
    code = set_up(training, environ, say) if training.setup else EXIT_OK
    if code == EXIT_OK:
        train(training, environ, say)
    return concluded(target)


def without_secrets(environ: MutableMapping[str, str]) -> None:
    """Takes tokens, and the files by which a step speaks to its runner, out of an environment that
    the training inherits."""
    for name in [name for name in environ if is_secret_variable(name) or RUNNERS.search(name)]:
        del environ[name]
