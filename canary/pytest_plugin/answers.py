"""What a run is compared with, and what its test says."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from canary.baseline.comparability import ending
from canary.baseline.history import drawer, entries, is_history, save
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Compared, Request, compared_paths
from canary.compare.thresholds import tier_thresholds
from canary.compare.verdict import MIN_HISTORY
from canary.errors import InputError, RunFailed, UsageError
from canary.matrix.outcomes import STORED, last_lines
from canary.pytest_plugin.asserting import Place, Policy
from canary.pytest_plugin.trainings import Trainings
from canary.record.folder import NAME_A_RUN, load_record
from canary.record.types import RunRecord
from canary.report.render import short, tidy
from canary.runner.outcome import LOG_LINES

LOG_BYTES = 16_384


@dataclass(frozen=True)
class Against:
    """What a run is compared with: a history, or a baseline that somebody chose."""

    history: Path | None
    baseline: tuple[Path, ...]
    tier: str | None = None

    @classmethod
    def of(
        cls,
        root: Path,
        policy: Policy,
        history: Place | None,
        baseline: Place | Iterable[Place] | None,
        tier: str | None,
    ) -> Against:
        """Return it for the arguments of a test, which are checked before anything trains.

        Raises:
            UsageError: they contradict each other, or name nothing.
        """
        if policy.accept is not None and not policy.accept.strip():
            raise UsageError("--canary-accept needs a reason", "it is stored with the run")
        if tier is not None:
            tier_thresholds(tier)
        if baseline is None:
            folder = root / (policy.history if history is None else history)
            if folder.exists() and not folder.is_dir():
                raise InputError(f"the history {folder} is a file", "name the folder of a history")
            return cls(folder, (), tier)
        if history is not None:
            raise UsageError("a history and a baseline are given", "give only one of them")
        several = [baseline] if isinstance(baseline, str | os.PathLike) else [*baseline]
        named = tuple(root / one for one in several)
        missing = next((path for path in named if not path.exists()), None)
        if missing is not None or not named:
            raise InputError(f"no baseline at {missing or baseline}", NAME_A_RUN)
        return cls(None, named, tier)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The baseline of `canary compare`; empty without a stored run."""
        if self.history is None:
            return self.baseline
        return (self.history,) if is_history(self.history) else ()


@dataclass(frozen=True)
class Answer:
    """What a test says about its run."""

    run: Path
    compared: Compared
    failed: bool
    text: str
    warning: str = ""
    log: str = ""
    """The end of the training's log, if it did not complete."""


def judged(
    run: Path, against: Against, policy: Policy, trainings: Trainings, strict: bool | None
) -> Answer:
    """Compare a run, and store it if that is asked for.

    Raises:
        CanaryError: the run or its baseline cannot be compared.
    """
    source = partial(source_between, trainings.root)
    compared = compared_paths(
        Request((run,), against.paths, against.tier, accept=policy.accept, source=source)
    )
    found = compared.found
    is_strict = policy.strict if strict is None else strict
    failed = bool(found.exit_code(is_strict))
    stored, problem = False, ""
    if against.history is not None and compared.current:
        with trainings.locked("history"):
            stored, problem = _stored(against.history, compared, policy)
    shown = Shown(run, against, policy)
    warnings = [problem] if problem else []
    if not failed and found.verdict in ("inconclusive", "no-baseline"):
        warnings.insert(0, _undecided(compared, shown, against.history, stored))
    strictly = failed and found.verdict == "inconclusive"
    after = [*shown.commands(compared), *([STRICT] if strictly else [])]
    return Answer(
        run,
        compared,
        failed,
        short(found, after, policy.width).rstrip("\n"),
        " ".join(warnings),
        _log(run) if _did_not_complete(compared) else "",
    )


STRICT = "Strict: an inconclusive canary fails this test."


def _stored(history: Path, compared: Compared, policy: Policy) -> tuple[bool, str]:
    """Store a run if the options say so. Return whether it is stored, and why it cannot be."""
    found, record = compared.found, compared.current[-1]
    accepted = found.accepted
    if accepted is None and not (policy.save and found.verdict in STORED):
        return False, ""
    known = {entry.run_id for entry in entries(drawer(history, record))}
    if record.run_id in known:
        return True, ""
    try:
        save(history, record, accepted=accepted)
    except InputError as error:
        return False, f"Not stored: {error.message}."
    return True, ""


def _undecided(compared: Compared, shown: Shown, history: Path | None, stored: bool) -> str:
    """Return the warning of a test that passes although its canary decided nothing."""
    first_line = compared.found.first_line
    if compared.found.verdict == "inconclusive":
        return f"{first_line} Record: {shown.run}"
    if history is None:
        return first_line
    if stored:
        number = len(compared.baseline) + 1
        return (
            f"No baseline yet: this is run {number} of the {MIN_HISTORY} that it needs, "
            f"stored in {shown.history}."
        )
    # If the history has this canary, then it is on other machine types.
    here = drawer(history, compared.current[-1])
    notes = compared.found.notes if here.parent.is_dir() and not compared.baseline else ()
    others = "".join(f" Note: {note}." for note in notes)
    return f"{first_line}{others} To store runs in {shown.history}: pytest --canary-save"


class Shown:
    """The paths and commands of an answer, for the folder in which the user started pytest."""

    def __init__(self, run: Path, against: Against, policy: Policy) -> None:
        self._here = policy.started_in
        self._test = shlex.quote(policy.test)
        self._against = against
        self._run = run
        self.run = self._word(run)
        self.history = None if against.history is None else self._word(against.history)

    def _word(self, path: Path) -> str:
        if path.is_relative_to(self._here):
            path = path.relative_to(self._here)
        return shlex.quote(str(path))

    def commands(self, compared: Compared) -> list[str]:
        """Return where the record is, and what to do next."""
        lines = [f"Record: {self.run}"]
        verdict = compared.found.verdict
        if _did_not_complete(compared):
            lines.append(f"Log: {self._word(_log_file(self._run))}")
        if verdict != "pass" and compared.baseline:
            paths = [self._word(path) for path in self._against.paths]
            against = paths if len(paths) == 1 else [f"--baseline {path}" for path in paths]
            lines.append(f"All checks: canary compare {self.run} {' '.join(against)}")
        if compared.found.failed_checks and not compared.found.accepted:
            lines += self._acceptance(verdict)
        return lines

    def _acceptance(self, verdict: str) -> list[str]:
        """Return how a person makes this run the new baseline."""
        save = f"canary save-baseline {self.run}"
        if self.history is not None:
            lines = [f"Accept: {save} {self.history} --accept REASON"]
            again = f"Or train again and accept: pytest {self._test} --canary-accept REASON"
            return [*lines, again] if verdict == "changed" else lines
        files = [path for path in self._against.baseline if path.suffix == ".json"]
        if len(self._against.baseline) == 1 and files:
            return [f"Accept: {save} {self._word(files[0])}"]
        return ["Accept: name this run as the baseline of the test"]


def _did_not_complete(compared: Compared) -> bool:
    return bool(compared.current) and compared.current[-1].status != "completed"


def _log_file(run: Path) -> Path:
    return (run if run.is_dir() else run.parent) / "log.txt"


def _log(run: Path) -> str:
    lines = last_lines(_log_file(run), LOG_BYTES)[-LOG_LINES:]
    return tidy("\n".join(lines)) if lines else ""


def completed(run: Path) -> RunRecord:
    """Return the record of a run.

    Raises:
        RunFailed: it did not complete.
    """
    record = load_record(run)
    if record.status != "completed":
        words = f"run {record.run_id} {ending(record)}"
        raise RunFailed(words, record.status, f"see {_log_file(run)}")
    return record
