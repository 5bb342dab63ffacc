"""Run the launches of `canary check` and judge each relation."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.advisories.advisory import advisories
from canary.advisories.facts import known_of
from canary.advisories.matching import Match, matches
from canary.check.mismatch import judged
from canary.check.own import own_files, told_outcomes, told_relation
from canary.check.ranks import on_ranks
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
    RunFailed,
    UsageError,
)
from canary.protocol.job import Kind, Listener, Result
from canary.record.exact import Exact
from canary.record.folder import new_run_id
from canary.record.types import RunRecord
from canary.relations import MODULES, RELATIONS
from canary.relations.relation import Outcome, Relation, RelationStatus, Variation, outcome
from canary.runner.run import run_canary
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
    faults: tuple[Match, ...] = ()
    """Known faults of the packages that trained. They do not change the exit code."""

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


class _Kept:
    """A listener that passes every event on and keeps the result of the launch."""

    def __init__(self, inner: Listener) -> None:
        self._inner = inner
        self.result: Result | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Keep the result."""
        self.result = result
        self._inner.launch_ended(kind, result)


@dataclass
class _Launches:
    """Runs launches of one training, each into a folder of its own."""

    loaded: LoadedConfig
    listener: Listener
    folder: Path
    count: int = 0

    def run(
        self,
        relations: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        variation: Variation | None = None,
        loaded: LoadedConfig | None = None,
    ) -> tuple[RunRecord, Path, Result]:
        """Run one probe; `loaded`: of another config.

        Raises:
            RunFailed: it does not complete.
        """
        kept = _Kept(self.listener)
        record, folder, result = run_canary(
            loaded or self.loaded,
            kept,  # type: ignore[arg-type]
            self.folder,
            relations=relations,
            relation_files=files,
            variation=variation,
        )
        self.count += 1
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if record.status != "completed":
            raise RunFailed(
                f"the training does not complete: {record.reason}",
                record.status,
                f"look at {folder / 'log.txt'}",
            )
        return record, folder, kept.result or result


@warm_starts()
def run_check(request: CheckRequest, listener: Listener, say: Callable[[str], None]) -> Checked:
    """Run the launches that the relations need, and judge them.

    Raises:
        UsageError: an unknown relation, or a config that cannot be checked.
        RunFailed: the training does not complete.
    """
    began = time.monotonic()
    wanted = request.relations()
    varied = affordable(wanted, QUICK_LAUNCHES) if request.is_quick else frozenset(wanted)
    loaded = _short(request.loaded)
    if loaded.config.imports is not None:
        return _imported(request, loaded, listener)
    folder = request.output_dir or _folder(loaded)
    launches = _Launches(loaded, listener, folder.absolute())
    # With nothing to vary, the launch says whether its loop could be varied.
    files = own_files(loaded, wanted)
    slow = {name for name in wanted if name in RELATIONS and RELATIONS[name].slow}
    asked = [name for name in wanted if not (request.is_quick and name in slow)]
    record, run, result = launches.run(relations=asked, files=files, variation={})
    inside = told_outcomes(result.relations, wanted)
    described = RELATIONS | {
        name: told_relation(name, file, result.own_relations) for name, file in files.items()
    }
    found = []
    for name in wanted:
        relation = described[name]
        answers = [*([inside[name]] if name in inside else []), *_of_record(relation, record)]
        if name == "sampler_logprobs" and (logged := judged(record)) is not None:
            answers = [*(one for one in answers if one["status"] != "undecided"), logged]
        varies = bool(relation.variations) and result.not_varied is None
        if varies and name in varied and not _is_broken(answers):
            say(f"{name}: {', then '.join(one['name'] for one in relation.variations)}")
            answers.append(_varied(relation, launches, (record, run, result)))
        elif relation.variations and not answers and result.not_varied is not None:
            answers.append(outcome(name, "not applicable", result.not_varied))
        left_out = (varies and name not in varied) or name not in asked
        found.append(_worst(relation, answers, left_out))
    seconds = time.monotonic() - began
    notes, faults = tuple(record.notes), matches(advisories(), known_of(record))
    return Checked(
        record.name, tuple(found), folder, launches.count, seconds, notes, described, faults
    )


def affordable(wanted: Sequence[str], launches: int) -> frozenset[str]:
    """Return the relations that so many launches can ask: those that need the fewest first."""
    chosen, left = set(), launches
    launches_of = {
        name: len(RELATIONS[name].variations) if name in RELATIONS else 0 for name in wanted
    }
    for name, needed in sorted(launches_of.items(), key=lambda pair: pair[1]):
        if needed <= left:
            chosen.add(name)
            left -= needed
    return frozenset(chosen)


def _imported(request: CheckRequest, loaded: LoadedConfig, listener: Listener) -> Checked:
    """Run a command that another program records, and judge what that logged.

    Raises:
        RunFailed: the command fails, or leaves no record.
    """
    began = time.monotonic()
    folder = request.output_dir or _folder(loaded)
    launches = _Launches(loaded, listener, folder.absolute())
    record, _, _ = launches.run()
    found = [_of_import(name, record) for name in request.relations()]
    seconds = time.monotonic() - began
    return Checked(record.name, tuple(found), folder, launches.count, seconds, tuple(record.notes))


NOT_WATCHED = "another program records the training: nothing is asked inside"
NOT_LOGGED = "the source has no metric of the mismatch of sampler and trainer"


def _of_import(name: str, record: RunRecord) -> Outcome:
    if name != "sampler_logprobs":
        return outcome(name, "not applicable", NOT_WATCHED)
    return judged(record) or outcome(name, "undecided", NOT_LOGGED)


def _folder(loaded: LoadedConfig) -> Path:
    """Return a new folder for the launches."""
    name = new_run_id(f"check-{loaded.config.name}", datetime.now(UTC))
    return Path(loaded.config.output_dir) / name


def _short(loaded: LoadedConfig) -> LoadedConfig:
    """Return the config with one short probe; of an import, with one launch."""
    config = loaded.config
    if config.imports is not None:
        return replace(loaded, config=config.model_copy(update={"repeats": 1}))
    steps = min(STEPS, config.max_steps or BUILT_IN_STEPS)
    profiler = config.profiler.model_copy(update={"enabled": False})
    changed = config.model_copy(
        update={"repeats": 0, "probe_steps": steps, "save_model": None, "profiler": profiler}
    )
    return replace(loaded, config=changed)


def _varied(
    relation: Relation, launches: _Launches, base: tuple[RunRecord, Path, Result]
) -> Outcome:
    """Run the launches of a relation and judge them."""
    record, folder, result = base
    recorded: list[Exact] = []
    folders = [folder]
    try:
        planned = [_planned(launches.loaded, one, record, result) for one in relation.variations]
        for plan in planned:
            if isinstance(plan, str):
                return outcome(relation.id, "not applicable", plan)
        for plan in planned:
            assert not isinstance(plan, str)
            loaded, one = plan
            varied: Variation = {**one, "saved_in": str(folders[-1])}
            found, folder, ended = launches.run(variation=varied, loaded=loaded)
            folders.append(folder)
            if ended.not_varied is not None:
                return outcome(relation.id, "not applicable", ended.not_varied)
            recorded.append(found.exact)
    except RunFailed as error:
        return outcome(relation.id, "undecided", f"{one['name']}: {error.message}")
    finally:
        for checkpoint in (path for one in folders for path in one.glob("checkpoint-*")):
            shutil.rmtree(checkpoint, ignore_errors=True)
    judged: Outcome = MODULES[relation.id].judge(record.exact, *recorded)
    return judged


def _planned(
    loaded: LoadedConfig, one: Variation, record: RunRecord, result: Result
) -> tuple[LoadedConfig, Variation] | str:
    """Return the config and the variation of a launch, or why it is not possible."""
    if "ranks" in one:
        return on_ranks(loaded, one, record, result.device.get("type"))
    return loaded, one


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
        return outcome(relation.id, "undecided", "the run gave no data for this")
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
