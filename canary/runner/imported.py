"""A command whose record is made from what it leaves: it runs once, as a plain process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from canary.config.load import LoadedConfig
from canary.config.sections import ImportConfig
from canary.errors import ConfigError, InputError
from canary.imports.files import Before
from canary.imports.preset import NO_PRESET, load_preset
from canary.imports.reading import Asked, read_source
from canary.imports.record import fill
from canary.protocol.failure import failure_of
from canary.protocol.job import Job, Result
from canary.protocol.record_writer import RecordWriter
from canary.runner.exec.command import CommandRunner, exited
from canary.runner.local import died
from canary.runner.processes import RankProcesses

OWN_OUTPUT = "-"
"""The source that means the command's own output."""


class LauncherRunner(CommandRunner):
    """The runner of a command that is not watched."""

    def _surroundings(self, job: Job, job_file: Path) -> dict[str, str]:
        """Return the command's environment, unchanged."""
        return dict(self._environment)

    def _outcome(self, job: Job, returncode: int | None, watch: RankProcesses) -> Result:
        """Return how the command ended."""
        if returncode == 0:
            return Result(status="completed", command_code=0)
        if returncode is None or returncode < 0:
            return replace(died(returncode), command_code=returncode)
        return replace(exited(returncode, watch), command_code=returncode)


def require_preset(loaded: LoadedConfig) -> None:
    """Refuse a config whose `import` names a preset that cannot be used, before anything is made.

    Raises:
        ConfigError: names file and key.
    """
    section = loaded.config.imports
    if section is None or section.preset in (None, NO_PRESET):
        return
    try:
        load_preset(section.preset)
    except InputError as error:
        place = loaded.origins.get("import.preset", loaded.source or "the config")
        what = f"import.preset in {place}: {error.message}"
        raise ConfigError(what, error.hint, key="import.preset") from error


@dataclass(frozen=True)
class Awaited:
    """What a command is to leave, and what was there before it."""

    asked: Asked
    before: Before

    @classmethod
    def of(cls, section: ImportConfig, log: Path) -> Awaited:
        """Look at the source before the command starts."""
        own = section.source == OWN_OUTPUT
        source = log if own else Path(section.source).absolute()
        form = section.format or ("console" if own else None)
        return cls(Asked(source, form, section.preset), Before.of(source))

    def into(self, writer: RecordWriter, result: Result) -> Result:
        """Read what the command left into the record. Without it the run failed."""
        if result.status != "completed":
            return result
        try:
            imported = read_source(self.asked, self.before)
            fill(writer, imported)
        except (ConfigError, InputError) as error:
            # Not the command's exit code, which was 0.
            return Result(status="failed", reason=error.message, hint=error.hint)
        if imported.failed is not None:  # A pipe such as `| tee` hides the exit code.
            words = imported.failed
            return Result(status="failed", reason=words, failure=failure_of(words), see_log=True)
        device = {"type": "cpu"}
        if gpus := writer.record.env.get("gpus"):
            device = {"type": "cuda", "name": str(gpus[0].get("name"))}
        writer.record.env["device"] = device
        return result
