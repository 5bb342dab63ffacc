"""Before blame: run a differing step twice on the same state, in two launches of the run's config.

Each launch trains up to the step as the run did, with the run's own kernels. The step and the one
before it, whose update it shows, run a second time. Both start from the same parameters, optimizer
and random states. A step unequal to itself, or two launches unequal to each other, show a machine,
kernel or seed that is not deterministic. Then a difference from the golden file says nothing about
the code. Launches that are equal, but do not give the run's values, leave it open: the code here
may be another one, or the run cannot be repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from canary.config.load import LoadedConfig, load_config
from canary.errors import InputError, RunFailed
from canary.golden.check import Checked, named_steps
from canary.golden.measured import MeasuredRun
from canary.golden.model import Golden, Series
from canary.protocol.job import Kind, Listener, Result, Twice
from canary.record.curves import curve_of
from canary.record.folder import RunFolder
from canary.record.ranks import RankSteps, merged_rows
from canary.record.step_row import Row

Verdict = Literal["deterministic", "not deterministic", "not seeded", "not repeated"]
"""`not seeded`: each step repeats, but two launches do not. `not repeated`: launches are equal, but
differ from the run."""
LAUNCHES = 2


@dataclass(frozen=True)
class Launched:
    """One launch of the replay."""

    rows: tuple[Row, ...]
    twice: tuple[Twice, ...]
    not_twice: str = ""
    git: Mapping[str, Any] = field(default_factory=dict)
    """The state of the code that it trained with, as in a record."""

    def series(self, name: str) -> Series:
        """Return a metric over the launch's steps."""
        curve = curve_of(self.rows, name)
        return Series(tuple(curve.steps), tuple(curve.values))


@dataclass(frozen=True)
class Replayed:
    """The answer of a replay."""

    verdict: Verdict
    step: int
    """The step at which run and golden file first differ."""
    sentence: str
    steps_twice: tuple[int, ...] = ()
    """The steps that ran twice on the same state."""
    gives: Literal["", "run", "golden"] = ""
    """Whose value at the step the replay gives again."""
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def clears_code(self) -> bool:
        """Whether the difference must not be laid to the code."""
        return self.verdict in ("not deterministic", "not seeded")


class _Results:
    """A listener that passes every event on and keeps the results of the launches."""

    def __init__(self, inner: Listener) -> None:
        self._inner = inner
        self.kept: list[Result] = []

    def launch_begins(self, kind: Kind, index: int, steps: int | None) -> None:
        """Say that this probe is a launch of the replay."""
        self._inner.warned("a launch of the replay: a probe, but with the run's own kernels")
        self._inner.launch_begins(kind, index, steps)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def launch_ended(self, kind: Kind, result: Result) -> None:
        """Keep the result."""
        self.kept.append(result)
        self._inner.launch_ended(kind, result)


def replay(run: MeasuredRun, checked: Checked, golden: Golden, listener: Listener) -> Replayed:
    """Replay the first differing step of a check.

    Raises:
        InputError: the run's config is not at hand, or no step differs.
        ConfigError: the config cannot be used.
        RunFailed: the replay did not complete.
    """
    step = checked.first_step
    if step is None:
        raise InputError(
            "there is no step to replay", "--replay needs a metric whose value differs at a step"
        )
    loaded = config_of(run)
    first = max(run.record.first_step, step - 1)
    names = {one.tag: one.name for one in checked.metrics}
    with tempfile.TemporaryDirectory(prefix="canary-replay-") as scratch:
        launches = _launches(loaded, listener, Path(scratch), first, step)
        parted = parted_at(launches, names.values(), step)
        if parted is not None and parted[0] < first and not _unequal(launches):
            # The step where the launches part says more than a later one.
            earlier = max(run.record.first_step, parted[0] - 1)
            launches += _launches(loaded, listener, Path(scratch), earlier, parted[0])
    return judged(run, golden, launches, names, step)


def config_of(run: MeasuredRun) -> LoadedConfig:
    """Return the run's config for a replay.

    Raises:
        InputError: it is not at hand.
        ConfigError: it cannot be used; a record hides secrets of its command.
    """
    file = run.folder / "config.yaml"
    if run.record.source is not None:
        raise InputError(
            f"run {run.run_id} was imported, so its steps cannot be replayed",
            "repeat it where it ran, and check both runs",
        )
    if not file.is_file():
        raise InputError(
            f"run {run.run_id} has no config.yaml in {run.folder}", "name the run's own folder"
        )
    return load_config(file, ["repeats=0", "profiler.enabled=false", "probe_steps=1"])


def _launches(
    loaded: LoadedConfig, listener: Listener, scratch: Path, first: int, last: int
) -> list[Launched]:
    """Run the probe to step `last` in LAUNCHES processes."""
    from canary.runner.run import run_canary

    config = loaded.config.model_copy(update={"probe_steps": last, "save_model": None})
    found = []
    for _ in range(LAUNCHES):
        results = _Results(listener)
        record, folder, result = run_canary(
            replace(loaded, config=config),
            results,  # type: ignore[arg-type]
            scratch,
            twice=(first, last),
        )
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if record.status != "completed":
            raise RunFailed(f"the replay did not complete: {record.reason}", record.status)
        rows = merged_rows(RankSteps(RunFolder(folder).probe_steps).read())
        twice = tuple(one for ended in results.kept for one in ended.twice)
        reason = next((ended.not_twice for ended in results.kept if ended.not_twice), "")
        found.append(Launched(tuple(rows), twice, reason, record.git))
    return found


def _unequal(launches: Sequence[Launched]) -> Twice | None:
    """Return the first step that was unequal to itself."""
    return next((t for one in launches for t in one.twice if t["differs"]), None)


def parted_at(
    launches: Sequence[Launched], names: Iterable[str], last: int
) -> tuple[int, str, float | None, float | None] | None:
    """Return the first step at which two launches differ, with the metric and both values."""
    found = []
    for name in names:
        series = [one.series(name).at() for one in launches]
        for other in series[1:]:
            for step in sorted({*series[0], *other}):
                was, now = series[0].get(step), other.get(step)
                if step <= last and was != now and not (was != was and now != now):
                    found.append((step, name, was, now))
                    break
    return min(found, key=lambda one: one[0], default=None)


def judged(
    run: MeasuredRun,
    golden: Golden,
    launches: Sequence[Launched],
    names: Mapping[str, str],
    step: int,
) -> Replayed:
    """Return the verdict over the launches; `names`: the file's name of a metric -> the run's."""
    twice = tuple(sorted({t["step"] for one in launches for t in one.twice}))
    reason = next((one.not_twice for one in launches if one.not_twice), "")
    if not twice and not reason:
        reason = "the training has no training_step of a transformers Trainer"
    alone = f"no step was run twice on the same state, because {reason}; the launches were compared"
    notes = (alone,) if not twice else ()
    if (bad := _unequal(launches)) is not None:
        return Replayed("not deterministic", step, _not_deterministic(bad), twice, notes=notes)
    if (parted := parted_at(launches, names.values(), step)) is not None:
        return Replayed("not seeded", step, _not_seeded(parted, twice), twice, notes=notes)
    gives = _gives(run, golden, launches[0], names, step)
    how = _how(twice, step)
    if gives == "run":
        words = f"{how}, and they give the run's values: the machine repeats itself"
        return Replayed("deterministic", step, words, twice, "run", notes)
    given = (
        "the golden values, not the run's" if gives else "neither the golden nor the run's values"
    )
    other = _other_code(run, launches[0])
    words = (
        f"{how} and give {given}. Either the code here is not the run's ({other}), or packages or "
    )
    words += "machine are not, or the run cannot be repeated"
    return Replayed("not repeated", step, words, twice, gives, notes)


def _other_code(run: MeasuredRun, launched: Launched) -> str:
    """Return what is known about the code of the run and of the replay."""
    was, now = run.record.git, launched.git
    then, here = was.get("sha"), now.get("sha")
    if then and here and then != here:
        return f"the run is of commit {then[:9]}, the replay of {here[:9]}"
    if was.get("dirty"):
        return "the run had uncommitted changes"
    if now.get("dirty"):
        return "there are uncommitted changes now"
    if not then or not here:
        return "its commit is not known"
    return "though both are of the same commit"


def _how(twice: Sequence[int], step: int) -> str:
    own = f"{_repeating(twice)} bit for bit"
    both = f"two launches are equal up to step {step}"
    return f"{own}, {both}" if twice else both


def _repeating(steps: Sequence[int]) -> str:
    return f"{named_steps(steps)} repeat{'s' if len(steps) == 1 else ''}"


def _not_deterministic(bad: Twice) -> str:
    where = ", ".join(bad["differs"])
    words = f"step {bad['step']} run twice on the same state differs from itself in {where}"
    if bad["losses"][0] != bad["losses"][1]:
        words += f" (loss {bad['losses'][0]!r} and {bad['losses'][1]!r})"
    elif bad["tensors"]:
        words += f" ({bad['tensors']} of {bad['of']} gradients, such as {bad['named'][0]})"
    return f"{words}: this machine or this kernel is not deterministic, or draws unseeded noise"


def _not_seeded(parted: tuple[int, str, float | None, float | None], twice: Sequence[int]) -> str:
    step, name, was, now = parted
    words = (
        f"two launches of the same config differ from step {step} on ({name} {was!r} and {now!r})"
    )
    if twice:
        words += f", although {_repeating(twice)} on the same state"
    return f"{words}: a seed is missing, or this machine or kernel is not deterministic"


def _gives(
    run: MeasuredRun, golden: Golden, launched: Launched, names: Mapping[str, str], step: int
) -> Literal["", "run", "golden"]:
    """Return whose values up to the step the replay gives."""
    of_run = of_golden = True
    for tag, name in names.items():
        one = golden.metrics[tag]
        if one.statistic == "median":
            continue
        found, was, file = launched.series(name).at(), run.series(name).at(), one.series.at()
        if not found:
            continue  # The probe does not record it.
        upto = [known for known in was if known <= step]
        of_run &= all(found.get(known) == was[known] for known in upto)
        of_golden &= all(
            known in file and one.rounded(found.get(known, float("nan"))) == file[known]
            for known in upto
            if one.asks_for(known)
        )
    return "run" if of_run else ("golden" if of_golden else "")
