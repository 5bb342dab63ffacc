"""The launches of `canary check`: each is one look in a folder of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.check.copied import TooLarge, copy_of, new_folder, remove_copy
from canary.config.load import LoadedConfig
from canary.errors import RunFailed
from canary.protocol.job import Listener, Result
from canary.record.jsonio import dumps
from canary.record.types import RunRecord
from canary.relations.relation import Variation
from canary.runner.run import run_canary

Launched = tuple[RunRecord, Path, Result]
"""What a launch left: its record, its folder, and how it ended."""
SHARED = frozenset(("name", "saved_in", "no_dropout", "perturbed"))
"""A launch that does no more than this in another way serves several relations."""


class _Kept:
    """A listener that passes every event on and keeps the result of the launch."""

    def __init__(self, inner: Listener) -> None:
        self._inner = inner
        self.result: Result | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def launch_ended(self, result: Result) -> None:
        """Keep the result."""
        self.result = result
        self._inner.launch_ended(result)


@dataclass
class Launches:
    """Runs launches of one training, each into a folder of its own."""

    loaded: LoadedConfig
    listener: Listener
    folder: Path
    say: Callable[[str], None]
    count: int = 0
    _kept: Path | None = None
    _why_not_kept: TooLarge | OSError | None = None
    _known: dict[str, Launched] = field(default_factory=dict)
    _again: Launched | None = None

    @contextlib.contextmanager
    def kept_folder(self) -> Iterator[None]:
        """Keep a copy of the working folder as a user's command finds it now: further launches
        inside start from that."""
        if self.loaded.config.training_type != "exec":
            yield
            return
        kept = new_folder(self.folder)
        try:
            copy_of(Path.cwd(), kept, (self.folder, Path(self.loaded.config.output_dir)))
            self._kept = kept
        except (TooLarge, OSError) as why:
            self._why_not_kept = why
        try:
            yield
        finally:
            remove_copy(kept)

    @contextlib.contextmanager
    def working_folder(self) -> Iterator[Path | None]:
        """Yield a new copy of the kept folder for one or more launches; None without a command.

        Raises:
            TooLarge: it holds too many files or bytes.
            OSError: something cannot be read or written.
        """
        if self._why_not_kept is not None:
            raise self._why_not_kept
        if self._kept is None:
            yield None
            return
        copied = new_folder(self.folder)
        try:
            copy_of(self._kept, copied, ())
            yield copied
        finally:
            remove_copy(copied)

    def run(
        self,
        relations: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        variation: Variation | None = None,
        loaded: LoadedConfig | None = None,
        copied: Path | None = None,
        purpose: str = "",
    ) -> Launched:
        """Run one look. `loaded`: of another config; `copied`: in a copy of the working folder;
        `purpose`: of a further launch, for the terminal.

        Raises:
            RunFailed: it does not complete.
        """
        if purpose:
            self.say(f"launch {self.count + 1}, for {purpose}")
        kept = _Kept(self.listener)
        record, folder, result = run_canary(
            loaded or self.loaded,
            kept,  # type: ignore[arg-type]
            self.folder,
            relations=relations,
            relation_files=files,
            variation=variation,
            copied=copied,
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

    def repeated(self, relation: str) -> Launched:
        """Run the launch once more as it is, or return it. `relation`: which one asks for it.

        Raises:
            RunFailed: it does not complete.
            TooLarge, OSError: the working folder cannot be copied.
        """
        if self._again is None:
            with self.working_folder() as copied:
                purpose = f"{relation}: the same again"
                self._again = self.run(variation={}, copied=copied, purpose=purpose)
        return self._again

    def varied(
        self, relation: str, variation: Variation, loaded: LoadedConfig, copied: Path | None
    ) -> Launched:
        """Run a launch that does something in another way, or return one that did the same.

        Raises:
            RunFailed: it does not complete.
        """
        purpose = f"{relation}: {variation['name']}"
        if not {*variation} <= SHARED or loaded is not self.loaded:
            return self.run(variation=variation, loaded=loaded, copied=copied, purpose=purpose)
        known = dumps({name: variation.get(name) for name in ("no_dropout", "perturbed")})
        if known not in self._known:
            self._known[known] = self.run(variation=variation, copied=copied, purpose=purpose)
        return self._known[known]
