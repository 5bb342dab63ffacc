"""Judges the sides of an A/B or a bisect: by the limits of the base's config, and the noise that
`canary calibrate` measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from canary.baseline.comparability import machine_key, slug
from canary.baseline.history import NOISE_FILE, VERSION
from canary.compare.diagnosis.source_changes import source_between
from canary.compare.paths import Request, metric_gates_for, require_same_machine, thresholds_for
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.lane import FAMILY_BUDGET
from canary.compare.timing.noise import NoiseModel, load_noise
from canary.errors import InputError
from canary.record.types import RunRecord

NO_LIMITS = Request((), ())
"""Gives no limits: those of the config count."""


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


@dataclass
class Judge:
    """Compares sides by the config of the first base that it gets."""

    folder: Path
    """In the repository of both commits, for what they changed."""
    measured: Measured
    accept: str | None = None
    _first: RunRecord | None = None

    def __call__(
        self,
        head: Sequence[RunRecord],
        base: Sequence[RunRecord],
        budget: float = FAMILY_BUDGET,
        *,
        paired: bool = False,
    ) -> Comparison:
        """Judge the head against the base. `paired`: their runs alternated."""
        first = self._first = self._first or (*base, *head)[0]
        thresholds, tier = thresholds_for(NO_LIMITS, (first,))
        found = compare_to_baseline(
            head,
            base,
            thresholds,
            paired=paired,
            noise=self.measured.of(first),
            budget=budget,
            metrics=metric_gates_for(NO_LIMITS, (first,)),
            accept=self.accept,
            source=source_between(self.folder, base[-1], head[-1]) if base and head else None,
        )
        return replace(found, tier=tier)

    def pairs(
        self, head: list[RunRecord], base: list[RunRecord], budget: float = FAMILY_BUDGET
    ) -> Comparison:
        """Judge runs that alternated; a side that failed has fewer."""
        return self(head, base, budget, paired=len(head) == len(base))
