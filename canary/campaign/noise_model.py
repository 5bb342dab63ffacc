"""The noise model of an A/B: the one that you name, or one that `canary calibrate` wrote here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from canary.baseline.branch import BRANCH, Remote, push
from canary.baseline.comparability import machine_key, slug
from canary.baseline.history import NOISE_FILE, VERSION, drawer, is_history
from canary.baseline.origin import Surroundings, remote_of
from canary.baseline.verbs import pulled, require_allowed
from canary.compare.paths import require_same_machine
from canary.compare.timing.noise import NoiseModel, load_noise, save_noise
from canary.errors import InputError, UsageError
from canary.record.types import RunRecord


def noise_file_of(canary: str) -> str:
    """Return the default name of the file that `canary calibrate` writes."""
    return f"noise-{canary or 'canary'}.json"


@dataclass
class Measured:
    """Finds the noise model once a record shows the machine, and prints which one it uses."""

    say: Callable[[str], None]
    named: Path | None = None
    """A noise model's file, or a history that holds noise models."""
    folder: Path | None = None
    """Where to look if none is named; None: do not look."""
    _found: NoiseModel | None = field(default=None, init=False)
    _looked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.named is not None and not is_history(self.named):
            self._found, self._looked = load_noise(self.named), True

    def of(self, record: RunRecord) -> NoiseModel | None:
        """Return the noise model for runs like this one.

        Raises:
            InputError: the named file is for another canary or machine.
        """
        if not self._looked:
            self._looked = True
            self._found = self._look(record)
        if self._found is not None:
            require_same_machine(self._found, record)
        return self._found

    def _look(self, record: RunRecord) -> NoiseModel | None:
        found = [model for path in self._places(record) if (model := self._fits(path, record))]
        if found:
            newest = max(found, key=lambda model: model.created)
            self.say(f"noise model of {newest.runs} runs, measured {newest.created[:10]}")
            return newest
        if self.named is not None:
            self.say(
                f"note: the history has no noise model of {record.name or 'this canary'} "
                f"on {machine_key(record)}; measure one with canary calibrate"
            )
        return None

    def _places(self, record: RunRecord) -> list[Path]:
        if self.named is not None:
            return [drawer(self.named, record) / NOISE_FILE]
        if self.folder is None:
            return []
        inner = f"{VERSION}/{slug(record.name or 'canary')}/{machine_key(record)}/{NOISE_FILE}"
        default = self.folder / noise_file_of(record.name)
        return [default, *sorted(self.folder.glob(f"*/{inner}"))]

    def _fits(self, path: Path, record: RunRecord) -> NoiseModel | None:
        if not path.is_file():
            return None
        try:
            model = load_noise(path)
            require_same_machine(model, record)
        except InputError as error:
            self.say(f"note: {path} is not used: {error.message}")
            return None
        return model


Place = tuple[Remote, Surroundings]


def noise_branch(remote: str | None, branch: str) -> Place | None:
    """Return the branch that `--remote` or `--branch` names; None if neither is given.

    Raises:
        UsageError: the remote does not exist.
    """
    if remote is None and branch == BRANCH:
        return None
    here = Surroundings.real()
    return remote_of(here, remote, branch), here


def require_writable(remote: Remote, here: Surroundings) -> None:
    """Check before the runs that the branch can be written.

    Raises:
        UsageError: this job may not write the baseline.
        MachineError, RecordError: the branch cannot be read.
    """
    require_allowed(here)
    with pulled(remote, here):
        pass


def push_noise(remote: Remote, here: Surroundings, model: NoiseModel, record: RunRecord) -> str:
    """Add the noise model to the branch, beside its canary's runs; return a sentence about it.

    Raises:
        MachineError, RecordError: see `branch.push`.
    """

    def add(folder: Path) -> None:
        save_noise(model, drawer(folder, record) / NOISE_FILE)

    words = f"the noise of {model.runs} runs of {record.name or 'canary'}"
    pushed = push(remote, add, message=words, keep=None, environ=here.environ)
    return f"{words} added to {remote}, now at {pushed.sha[:9]}"


@contextlib.contextmanager
def named_noise(file: Path | None, place: Place | None) -> Iterator[Path | None]:
    """Yield the file or history that `--noise` names, or the history of the branch.

    Raises:
        UsageError: both are given.
        MachineError, RecordError: the branch cannot be read.
    """
    if place is None:
        yield file
        return
    if file is not None:
        raise UsageError("--noise and --remote name two noise models", "give only one of them")
    with pulled(*place) as (_, history):
        yield history
