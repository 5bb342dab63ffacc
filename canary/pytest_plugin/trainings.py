"""The trainings of a pytest session: each runs once, whichever test and worker asks first.

A training is a process of its own (`canary run`, `canary exec`). How it ended is kept in a folder
that all workers of the session share. A training that another worker has begun is waited for, and
so are devices that another training uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from canary.campaign.side import finish_child, folder_left, start_child
from canary.config.load import LoadedConfig, load_config
from canary.errors import MachineError
from canary.machine.pool import all_devices
from canary.machine.program import program
from canary.record import jsonio
from canary.runner.exec.entry import ExecRequest, load_request

PROGRAM = program(sys.executable)
"""With -P, as by its command: a file `queue.py` of the project hides no module from it."""
OF_PYTEST = ("PYTEST_", "COV_CORE_", "COVERAGE_")
"""Variables for the processes of pytest begin so. Under coverage, a training would be slower."""
PROBLEM = "canary: "
"""The canary's own errors begin so."""
RECORD = "record: "
"""`canary exec` ends its standard error with this and the run's folder."""
WAITS = "canary: waits for another training on this machine"


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    folder: str
    """Of the run; empty if it named none."""
    said: str
    """The last line on its standard error."""

    def run(self) -> Path:
        """Return the folder of the run.

        Raises:
            UsageError: config or input cannot be used.
            MachineError: the run left no record.
        """
        return folder_left(self.code, self.folder, self.said)


class Trainings:
    """Trains on demand. Paths are relative to `root`."""

    def __init__(
        self,
        root: Path,
        shared: Path,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`shared`: a folder of this session alone. `tell` shows the user a line."""
        self.root = root
        self._shared = shared
        self._tell = tell

    def of_config(self, config: str, settings: Sequence[str]) -> Path:
        """Return the folder of a run of the config.

        Raises:
            UsageError: the config or its input cannot be used.
            MachineError: the run left no record.
        """
        with contextlib.chdir(self.root):
            loaded = load_config(config, settings)
        return self._ended(["run", config, "--quiet", *_set(settings)], loaded).run()

    def of_command(self, request: ExecRequest) -> Path:
        """Return the folder of a run of a command; raises like `of_config`."""
        with contextlib.chdir(self.root):
            loaded = load_request(request)
        given = {
            "--name": request.name,
            "--config": request.config,
            "--max-steps": request.max_steps,
        }
        words = ["exec", *_set(request.settings)]
        for option, value in given.items():
            words += [] if value is None else [option, str(value)]
        return self._ended([*words, "--", *request.command], loaded).run()

    def _ended(self, words: Sequence[str], loaded: LoadedConfig) -> Ended:
        """Return how `canary` with these words ended. Ask the session first."""
        # The variables of a training that was started by hand.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(OF_PYTEST)
        }
        asked = [list(words), loaded.config.model_dump(mode="json"), sorted(environment.items())]
        key = hashlib.sha256(jsonio.dumps(asked).encode()).hexdigest()[:32]
        with self.locked(key):
            answer = self._shared / f"{key}.json"
            with contextlib.suppress(FileNotFoundError):
                return Ended(**jsonio.loads(jsonio.content_of(answer)))
            ended = self._trained(words, environment)
            jsonio.replace_file(answer, jsonio.dumps(asdict(ended)))
            return ended

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep other workers of the session out of a block."""
        try:
            self._shared.mkdir(exist_ok=True)
            file = (self._shared / f"{name}.lock").open("w")
        except OSError as error:
            what = error.filename or self._shared
            raise MachineError(f"cannot write {what}: {error.strerror or error}") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _trained(self, words: Sequence[str], environment: Mapping[str, str]) -> Ended:
        command = [*_dies_with_us(), *PROGRAM, *words]
        with all_devices(lambda: self._tell(WAITS)) as devices:
            child = start_child(command, self.root, environment, devices)
            code, out, err = finish_child(child)
        return _ended(words[0], code, out.splitlines(), err.splitlines())


def _ended(verb: str, code: int, out: Sequence[str], err: Sequence[str]) -> Ended:
    said = err[-1].removeprefix(PROBLEM).removeprefix("failed: ") if err else ""
    if verb == "run":
        return Ended(code, out[-1] if out else "", said)
    named = "" if code < 0 else _record_named(err)
    # With a record, the code is that of the command.
    return Ended(0 if named else code, named, said)


def _record_named(err: Sequence[str]) -> str:
    """Return the run that `canary exec` names at its end. A line of the command may look the same:
    where the canary failed or was killed (a code below 0), no line is its own."""
    for line in reversed(err):
        if line.startswith(RECORD):
            return line.removeprefix(RECORD)
        if line.startswith(PROBLEM):
            return ""
    return ""


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _dies_with_us() -> list[str]:
    """Return what ends a child if pytest is killed: `setpriv` of util-linux, where it is there."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "TERM"]
