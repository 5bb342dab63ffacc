"""Training and report in one process, for repositories where every author is trusted."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from dataclasses import replace

from canary.config.setting_names import is_secret_variable
from canary.errors import EXIT_OK
from canary.gate.context import World
from canary.gate.failsafe import Target
from canary.gate.inputs import ReportSettings, TrainSettings
from canary.gate.report_job import announced, concluded, paged, read_event
from canary.gate.run_job import train
from canary.gate.workspace import set_up
from canary.github.event import Kind

RUNNERS = re.compile(r"^ACTIONS_|^GITHUB_(ENV|OUTPUT|PATH|STATE|STEP_SUMMARY)$")
"""Variables through which a step talks to its runner."""


def whole(
    read: Callable[[], TrainSettings],
    settings: ReportSettings,
    world: World,
    environ: MutableMapping[str, str],
    say: Callable[[str], None],
) -> int:
    """Set pending, run setup, train and report; return the exit code of the verdict.

    `read`: reads the training inputs; the commit's answer shows its errors too.

    Raises:
        UsageError: the gate refuses this event, or an input is invalid.
        MachineError: as `answer`.
    """
    target = Target(settings, world, read_event(settings, world))
    return paged(target, lambda: _whole(target, read, environ, say))


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
    """Remove tokens and the runner's files from the environment that the training inherits."""
    for name in [name for name in environ if is_secret_variable(name) or RUNNERS.search(name)]:
        del environ[name]
