"""The launches of `canary check`: each is one look in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    count: int = 0
    _known: dict[str, Launched] = field(default_factory=dict)
    _again: Launched | None = None

    def run(
        self,
        relations: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        variation: Variation | None = None,
        loaded: LoadedConfig | None = None,
        copied: Path | None = None,
    ) -> Launched:
        """Run one look. `loaded`: of another config; `copied`: in a copy of the working folder.

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

    def repeated(self) -> Launched:
        """Run the launch once more as it is, or return it.

        Raises:
            RunFailed: it does not complete.
        """
        if self._again is None:
            self._again = self.run(variation={})
        return self._again

    def varied(self, variation: Variation, loaded: LoadedConfig, copied: Path | None) -> Launched:
        """Run a launch that does something in another way, or return one that did the same.

        Raises:
            RunFailed: it does not complete.
        """
        if not {*variation} <= SHARED or loaded is not self.loaded:
            return self.run(variation=variation, loaded=loaded, copied=copied)
        known = dumps({name: variation.get(name) for name in ("no_dropout", "perturbed")})
        if known not in self._known:
            self._known[known] = self.run(variation=variation)
        return self._known[known]
