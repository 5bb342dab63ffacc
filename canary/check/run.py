"""Run the launches of `canary check` and judge each relation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.side import claimed
from canary.check.launches import Launches
from canary.check.mismatch import judged
from canary.check.own import own_files, told_outcomes, told_relation
from canary.check.varied import affordable, ask_launches, variations_of
from canary.compare.invariants.checks import invariant_checks
from canary.compare.report import Check
from canary.config.check_keys import known_relations, unknown_relation
from canary.config.load import LoadedConfig
from canary.config.sections import CheckConfig
from canary.config.trainers import BUILT_IN_STEPS
from canary.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    EXIT_REGRESSION,
    UsageError,
)
from canary.protocol.job import Listener
from canary.record.folder import new_run_id
from canary.record.types import RunRecord
from canary.relations import RELATIONS
from canary.relations.relation import Outcome, Relation, RelationStatus, outcome
from canary.runner.warm import warm_starts

STEPS = 6
"""Updates of each launch."""
QUICK_LAUNCHES = 2
"""Launches that `--quick` may add to the first one."""


def wanted_relations(section: CheckConfig) -> tuple[str, ...]:
    """Return the ids of the relations that a section `check` of a config wants."""
    return tuple(
        name
        for name in known_relations(section)
        if (not section.only or name in section.only) and name not in section.skip
    )


@dataclass(frozen=True)
class CheckRequest:
    """What to check."""

    loaded: LoadedConfig
    only: tuple[str, ...] = ()
    """Instead of the config's `only` and `skip`, if some are named."""
    skip: tuple[str, ...] = ()
    """Instead of the config's, if some are named."""
    quick: bool | None = None
    """None: as the config says."""
    output_dir: Path | None = None

    @property
    def is_quick(self) -> bool:
        """Whether only few launches may run."""
        return self.loaded.config.check.quick if self.quick is None else self.quick

    def relations(self) -> tuple[str, ...]:
        """Return the ids of the wanted relations.

        Raises:
            UsageError: one is unknown, or none is left.
        """
        section = self.loaded.config.check
        known = known_relations(section)
        only = self.only or section.only
        skip = self.skip or (() if self.only else section.skip)
        for option, names in (("--only", self.only), ("--skip", self.skip)):
            wrong = unknown_relation(names, known)
            if wrong is not None:
                raise UsageError(f"{option} {wrong[0]}: there is no such relation", wrong[1])
        wanted = wanted_relations(section.model_copy(update={"only": only, "skip": skip}))
        if not wanted:
            raise UsageError("no relation is left to check", "name fewer with --skip")
        return wanted


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
    described: Mapping[str, Relation] = field(default_factory=lambda: RELATIONS)
    """The relations by id."""

    def pairs(self) -> list[tuple[Relation, Outcome]]:
        """Return the relations and what they showed, in their order."""
        return [(self.described[one["relation"]], one) for one in self.outcomes]

    def of(self, status: RelationStatus) -> list[tuple[Relation, Outcome]]:
        """Return the relations with a status, in their order."""
        return [pair for pair in self.pairs() if pair[1]["status"] == status]

    @property
    def exit_code(self) -> int:
        """1 if a relation is broken, 3 if none holds, else 0."""
        if self.of("broken"):
            return EXIT_REGRESSION
        return EXIT_OK if self.of("holds") else EXIT_INCONCLUSIVE


@warm_starts()
def run_check(request: CheckRequest, listener: Listener, say: Callable[[str], None]) -> Checked:
    """Run the launches that the relations need, and judge them.

    Raises:
        UsageError: an unknown relation, or a config that cannot be checked.
        RunFailed: the training does not complete.
    """
    began = time.monotonic()
    wanted = request.relations()
    loaded = _short(request.loaded)
    if loaded.config.imports is not None:
        return _imported(request, loaded, listener, say)
    folder = request.output_dir or _folder(loaded)
    if request.output_dir is None:
        claimed(folder)
    launches = Launches(loaded, listener, folder.absolute(), say)
    with launches.kept_folder():
        return _checked(request, wanted, launches, began)


def _checked(
    request: CheckRequest,
    wanted: Sequence[str],
    launches: Launches,
    began: float,
) -> Checked:
    """Run the launches one by one, and judge what they showed."""
    loaded = launches.loaded
    # With nothing to vary, the launch says whether a Trainer trains.
    files = own_files(loaded, wanted)
    slow = {name for name in wanted if name in RELATIONS and RELATIONS[name].slow}
    asked = [name for name in wanted if not (request.is_quick and name in slow)]
    record, run, result = launches.run(relations=asked, files=files, variation={})
    inside = told_outcomes(result.relations, wanted)
    described = RELATIONS | {
        name: told_relation(name, file, result.own_relations) for name, file in files.items()
    }
    ways = {name: variations_of(described[name], result, record.exact) for name in wanted}
    needed = {name: 0 if isinstance(one, str) else len(one) for name, one in ways.items()}
    varied = affordable(needed, QUICK_LAUNCHES) if request.is_quick else frozenset(wanted)
    found = []
    for name in wanted:
        relation, ways_of = described[name], ways[name]
        answers = _of_first(name, relation, inside, record)
        if isinstance(ways_of, str):
            answers += [] if answers else [outcome(name, "not applicable", ways_of)]
        elif ways_of and name in varied and not _is_broken(answers):
            answers.append(ask_launches(relation, ways_of, launches, (record, run, result)))
        left_out = (needed[name] > 0 and name not in varied) or name not in asked
        found.append(_worst(relation, answers, left_out))
    seconds = time.monotonic() - began
    notes = tuple(record.notes)
    return Checked(
        record.name, tuple(found), launches.folder, launches.count, seconds, notes, described
    )


def _of_first(
    name: str, relation: Relation, inside: Mapping[str, Outcome], record: RunRecord
) -> list[Outcome]:
    """Return what the first launch says of a relation: inside the training (`inside`), and in its
    record."""
    answers = [*([inside[name]] if name in inside else []), *_of_record(relation, record)]
    if name == "sampler_logprobs" and (logged := judged(record)) is not None:
        answers = [*(one for one in answers if one["status"] != "undecided"), logged]
    return answers


def _imported(
    request: CheckRequest, loaded: LoadedConfig, listener: Listener, say: Callable[[str], None]
) -> Checked:
    """Run a command that another program records, and judge what that logged.

    Raises:
        RunFailed: the command fails, or leaves no record.
    """
    began = time.monotonic()
    folder = request.output_dir or _folder(loaded)
    if request.output_dir is None:
        claimed(folder)
    launches = Launches(loaded, listener, folder.absolute(), say)
    record, _, _ = launches.run()
    found = [_of_import(name, record) for name in request.relations()]
    seconds = time.monotonic() - began
    return Checked(record.name, tuple(found), folder, launches.count, seconds, tuple(record.notes))


NOT_WATCHED = "another program records this training: nothing is tested inside"
NOT_LOGGED = "the framework logged no mismatch of sampler and trainer"


def _of_import(name: str, record: RunRecord) -> Outcome:
    if name != "sampler_logprobs":
        return outcome(name, "not applicable", NOT_WATCHED)
    return judged(record) or outcome(name, "undecided", NOT_LOGGED)


def _folder(loaded: LoadedConfig) -> Path:
    """Return a new folder for the launches."""
    name = new_run_id(loaded.config.name, datetime.now(UTC))
    return Path(loaded.config.output_dir) / f"check-{name}"


def _short(loaded: LoadedConfig) -> LoadedConfig:
    """Return the config with one short look; of an import, with one launch."""
    config = loaded.config
    if config.imports is not None:
        return replace(loaded, config=config.model_copy(update={"repeats": 1}))
    steps = min(STEPS, config.max_steps or BUILT_IN_STEPS)
    profiler = config.profiler.model_copy(update={"enabled": False})
    changed = config.model_copy(
        update={
            "repeats": 1,
            "exact": True,
            "look_steps": steps,
            "save_model": None,
            "profiler": profiler,
        }
    )
    return replace(loaded, config=changed)


ORDER: tuple[RelationStatus, ...] = (
    "broken",
    "undecided",
    "holds",
    "not asked",
    "not applicable",
)
"""The first of several answers counts. A part that a check leaves out may apply."""
LEFT_OUT = "a quick check leaves it out"


def _is_broken(answers: Sequence[Outcome]) -> bool:
    return any(one["status"] == "broken" for one in answers)


def _worst(relation: Relation, answers: Sequence[Outcome], left_out: bool) -> Outcome:
    if left_out:
        answers = [*answers, outcome(relation.id, "not asked", LEFT_OUT)]
    if not answers:
        return outcome(relation.id, "undecided", "the first launch recorded nothing about this")
    return min(answers, key=lambda one: ORDER.index(one["status"]))


def _of_record(relation: Relation, record: RunRecord) -> list[Outcome]:
    """Return what the invariants of the record say of a relation."""
    made = {one.name: one for one in invariant_checks([record])}
    checks = [made[name] for name in relation.invariants if name in made]
    able = [one for one in checks if one.unjudged != "inapplicable"]
    if checks and not able and relation.inapplicable:
        return [outcome(relation.id, "not applicable", relation.inapplicable)]
    return [_of_check(relation, one) for one in able or checks]


def _of_check(relation: Relation, check: Check) -> Outcome:
    message = check.message.rstrip(".")
    status: dict[str, RelationStatus] = {
        "fail": "broken",
        "changed": "broken",
        "pass": "holds",
        "skip": "not applicable",
    }
    return outcome(relation.id, status.get(check.status, "undecided"), message)
