"""The noise models that `canary calibrate` wrote: found for an A/B, and put on the branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from canary.baseline.branch import BRANCH, Remote, push
from canary.baseline.comparability import machine_key, slug
from canary.baseline.history import NOISE_FILE, VERSION, drawer
from canary.baseline.origin import Surroundings, remote_of
from canary.baseline.verbs import pulled, require_allowed
from canary.compare.paths import require_same_machine
from canary.compare.timing.noise import NoiseModel, load_noise, save_noise
from canary.errors import InputError
from canary.record.types import RunRecord


def noise_file_of(canary: str) -> str:
    """Return the default name of the file that `canary calibrate` writes."""
    return f"noise-{canary or 'canary'}.json"


@dataclass
class Measured:
    """Finds the noise model once a record shows the machine, and prints which one it uses."""

    say: Callable[[str], None]
    folder: Path | None = None
    """Where to look, and in its histories; None: do not look."""
    _found: NoiseModel | None = field(default=None, init=False)
    _looked: bool = field(default=False, init=False)

    def of(self, record: RunRecord) -> NoiseModel | None:
        """Return the newest noise model for runs like this one."""
        if not self._looked and self.folder is not None:
            inside = f"{VERSION}/{slug(record.name or 'canary')}/{machine_key(record)}"
            inner = sorted(self.folder.glob(f"*/{inside}/{NOISE_FILE}"))
            places = [self.folder / noise_file_of(record.name), *inner]
            models = [model for path in places if (model := self._fits(path, record))]
            self._found = max(models, key=lambda model: model.created, default=None)
            if self._found is not None:
                made = self._found
                self.say(f"noise model of {made.runs} runs, measured {made.created[:10]}")
        self._looked = True
        return self._found

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
