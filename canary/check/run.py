"""Run the launches of `canary check` and judge each relation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.compare.invariants.checks import invariant_checks
from canary.compare.report import Check
from canary.config.load import LoadedConfig
from canary.config.trainers import BUILT_IN_STEPS
from canary.errors import EXIT_OK, EXIT_REGRESSION, RunFailed, UsageError, did_you_mean, nearest
from canary.protocol.job import Kind, Listener, Result
from canary.record.types import RunRecord
from canary.relations import RELATIONS
from canary.relations.relation import Outcome, Relation, outcome
from canary.runner.run import run_canary

STEPS = 6
"""Updates of the launch that is looked at."""


@dataclass(frozen=True)
class CheckRequest:
    """What to check."""

    loaded: LoadedConfig
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    output_dir: Path | None = None

    def relations(self) -> tuple[str, ...]:
        """Return the ids of the wanted relations.

        Raises:
            UsageError: one is unknown, or none is left.
        """
        for option, names in (("--only", self.only), ("--skip", self.skip)):
            for name in names:
                if name not in RELATIONS:
                    raise UsageError(
                        f"{option} {name}: there is no such relation",
                        did_you_mean(nearest(name, RELATIONS), "canary check --list names all"),
                    )
        wanted = [
            name
            for name in RELATIONS
            if (not self.only or name in self.only) and name not in self.skip
        ]
        if not wanted:
            raise UsageError("no relation is left to check", "name fewer with --skip")
        return tuple(wanted)


@dataclass(frozen=True)
class Checked:
    """The answer of `canary check`."""

    name: str
    """Of the canary."""
    outcomes: tuple[Outcome, ...]
    folder: Path
    launches: int
    seconds: float
    notes: tuple[str, ...] = ()

    def of(self, status: str) -> list[tuple[Relation, Outcome]]:
        """Return the relations with a status, in their order."""
        return [
            (RELATIONS[one["relation"]], one) for one in self.outcomes if one["status"] == status
        ]

    @property
    def exit_code(self) -> int:
        """1 if a relation is broken, else 0."""
        return EXIT_REGRESSION if self.of("broken") else EXIT_OK


class _Kept:
    """A listener that passes every event on and keeps the results of the launches."""

    def __init__(self, inner: Listener) -> None:
        self._inner = inner
        self.results: list[Result] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Keep the result."""
        self.results.append(result)
        self._inner.launch_ended(kind, result)


def run_check(request: CheckRequest, listener: Listener) -> Checked:
    """Run the launches that the relations need, and judge them.

    Raises:
        UsageError: an unknown relation, or a config that cannot be checked.
        RunFailed: the training does not complete.
    """
    began = time.monotonic()
    wanted = request.relations()
    loaded = _short(request.loaded)
    kept = _Kept(listener)
    record, folder, result = run_canary(
        loaded,
        kept,  # type: ignore[arg-type]
        request.output_dir,
        relations=wanted,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if record.status != "completed":
        raise RunFailed(
            f"the training does not complete: {record.reason}",
            record.status,
            f"look at {folder / 'log.txt'}",
        )
    inside = {one["relation"]: one for ended in kept.results for one in ended.relations}
    outcomes = tuple(_judged(RELATIONS[name], inside.get(name), record) for name in wanted)
    return Checked(record.name, outcomes, folder, 1, time.monotonic() - began, tuple(record.notes))


def _short(loaded: LoadedConfig) -> LoadedConfig:
    """Return the config with one short probe."""
    config = loaded.config
    if config.imports is not None:
        raise UsageError(
            "a training that another program records cannot be checked",
            "check the command itself: canary check -- COMMAND",
        )
    steps = min(STEPS, config.max_steps or BUILT_IN_STEPS)
    profiler = config.profiler.model_copy(update={"enabled": False})
    changed = config.model_copy(
        update={"repeats": 0, "probe_steps": steps, "save_model": None, "profiler": profiler}
    )
    return replace(loaded, config=changed)


def _judged(relation: Relation, inside: Outcome | None, record: RunRecord) -> Outcome:
    """Return the answer of a relation: from the training process, from the record, or from both."""
    checks = {one.name: one for one in invariant_checks([record])}
    found = [_of_check(relation, checks[name]) for name in relation.invariants if name in checks]
    answers = [*([] if inside is None else [inside]), *found]
    return _worst(relation, answers)


ORDER = ("broken", "undecided", "holds", "not applicable")


def _worst(relation: Relation, answers: Sequence[Outcome]) -> Outcome:
    if not answers:
        return outcome(relation.id, "undecided", "the training showed nothing about it")
    return min(answers, key=lambda one: ORDER.index(one["status"]))


def _of_check(relation: Relation, check: Check) -> Outcome:
    """Return what an invariant of the record says of a relation."""
    message = check.message.rstrip(".")
    if check.status == "skip":
        return outcome(relation.id, "not applicable", message)
    status = {"fail": "broken", "changed": "broken", "pass": "holds"}.get(check.status)
    if status == "broken":
        return outcome(relation.id, "broken", message)
    return outcome(relation.id, "holds" if status else "undecided", message)
