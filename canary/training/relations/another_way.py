"""What this process does in another way for `canary check`, whatever its training loop."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from canary.protocol.failure import one_line
from canary.record.exact import Varied
from canary.relations.relation import Variation
from canary.relations.resume import NO_CHECKPOINT
from canary.relations.workers import NO_LOADER
from canary.training.relations.first_calls import FirstCalls, TrainingCalls
from canary.training.relations.loaders import LoaderWorkers, change_batches
from canary.training.relations.saves import Saves, holds_a_model
from canary.training.relations.widening import Unclear, tensors_of, widened

WORDS = ("WORLD_SIZE", "init_process_group", "init_device_mesh", "DistributedSampler")
INSTALLED = "site-packages"
MOST_FILES = 64
"""Files of the program that are read."""

MOST_BATCHES = 64
"""Batches whose widths are remembered: a loop may load some ahead."""
POSITIONS = ("max_position_embeddings", "n_positions")
"""Fields of a model's config that limit its width."""
OF_LOOPS = frozenset(
    (
        *("name", "saved_in", "workers", "widened", "no_dropout", "no_random", "perturbed"),
        *("killed", "restarted", "ranks"),
    )
)
"""What a plain loop can do in another way."""


NO_GROUP = "the ranks form no group of torch.distributed"

NO_TRAINER = "this relation needs a transformers Trainer"


def not_by_loops(variation: Variation | None) -> str | None:
    """Return why a plain loop cannot train in this way, None if it can. With nothing to vary, the
    answer says that no Trainer trains."""
    if variation is None or (variation and {*variation} <= OF_LOOPS):
        return None
    return NO_TRAINER


class WiderBatches:
    """Widens the batches of all loaders, and follows where they go."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._widths: deque[tuple[bool, frozenset[int]]] = deque(maxlen=MOST_BATCHES)
        self._widest: int | None = None
        self._looked = self._given = self._entered = self._is_other = False
        self._unclear = ""

    def changed(self, batch: Any) -> Any:
        """Return a batch with more padding, or as it is."""
        self._given = True
        made = self._tried(self._wider, batch)
        given = batch if made is None else made
        widths = self._tried(_widths, given) or frozenset()
        self._widths.append((made is not None, widths))
        return given

    def _wider(self, batch: Any) -> Any | None:
        if not self._looked:
            self._looked, self._widest = True, _widest_model()
        return widened(batch, self._columns, self._widest)

    def _tried(self, call: Callable[[Any], Any], batch: Any) -> Any | None:
        """Do something with a batch, or note why that is not possible."""
        try:
            return call(batch)
        except Unclear as why:
            self._unclear = str(why)
        except Exception as error:  # noqa: BLE001 - a batch may hold anything
            self._unclear = one_line(error)
        return None

    def trained_on(self, widths: list[int]) -> None:
        """Tokens of these widths entered a call with gradients."""
        # A loop may cut off one column: the first or the last token.
        held = [
            wide
            for wide, known in self._widths
            if any(width + less in known for width in widths for less in (0, 1))
        ]
        self._entered |= any(held)
        self._is_other |= bool(widths) and not held

    def why_not(self) -> str | None:
        """Return why the training was none on wider batches."""
        if not self._given:
            return NO_LOADER
        if self._unclear and (self._is_other or not self._entered):
            return f"more padding of a batch is not clear: {self._unclear}"
        if self._is_other:
            return "the training uses other rows than the DataLoader gives"
        if self._entered:
            return None
        return "no batch of the DataLoader has a padded row"


def _widths(batch: Any) -> frozenset[int]:
    """Return the widths of a batch's tensors of two dimensions."""
    return frozenset(one.value.shape[1] for one in tensors_of(batch) if one.value.dim() == 2)


def _widest_model() -> int | None:
    """Return the least number of positions of all models."""
    configs = (
        getattr(one, "config", None)
        for one in gc.get_objects()
        if issubclass(type(one), nn.Module) and "_parameters" in vars(one)
    )
    found = (getattr(one, name, None) for one in configs for name in POSITIONS)
    return min((one for one in found if isinstance(one, int)), default=None)


class AnotherWay:
    """What the launch of this process does in another way. A process has one."""

    def __init__(self) -> None:
        self._variation: Variation | None = None
        self._saves: Saves | None = None
        self._workers: LoaderWorkers | None = None
        self._wider: WiderBatches | None = None
        self._models: FirstCalls | None = None
        self._calls: TrainingCalls | None = None
        self._looks_on = self._has_saved = False
        self._saved_at: int | None = None
        self._paths: list[str] = []
        self._knows_ranks: bool | None = None
        """None until a plain loop begins an update."""
        self._rank: int | None = None
        """Of a plain loop that trains in a group."""

    def begin(self, variation: Variation | None, *, trainer: bool) -> None:
        """Change this process; with nothing to vary, see what could be. `trainer`: a Trainer's
        models are changed by `vary`."""
        if trainer and self._models is not None:
            self._models.is_off = True
        if variation is None or self._variation is not None:
            return
        self._variation = variation
        self._looks_on = not variation
        if "workers" in variation or "ranks" in variation or self._looks_on:
            self._workers = LoaderWorkers(variation.get("workers"))
            self._workers.begin()
        if variation.get("widened"):
            self._wider = WiderBatches(variation["widened"])
            change_batches(self._wider.changed)
        if variation.get("killed") or self._looks_on:
            self._saves = Saves()
            self._saves.begin()
        if "no_random" in variation or ("no_dropout" in variation and not trainer):
            self._follow_calls(variation, is_off=trainer)

    def _follow_calls(self, variation: Variation, *, is_off: bool) -> None:
        self._models = FirstCalls(
            no_dropout=bool(variation.get("no_dropout")), perturbed=variation.get("perturbed")
        )
        self._models.is_off = is_off
        wider = self._wider
        self._calls = TrainingCalls(
            self._models.called, (lambda _: None) if wider is None else wider.trained_on
        )
        self._calls.begin()

    def gives_way(self) -> None:
        """A Trainer or a Recorder takes the place of a plain loop."""
        if self._models is not None:
            self._models.is_off = True

    def is_killed(self, done: int, size: int = 0) -> bool:
        """Whether the process is to be killed now, as the update of a plain loop after `done`
        others begins: it has saved a checkpoint since the update before began. `size`: numbers
        that are trained; smaller files, as of losses, are no checkpoint."""
        if self._knows_ranks is None:
            self._knows_ranks = uses_ranks()
        if self._rank is None and dist.is_available() and dist.is_initialized():
            self._rank = dist.get_rank()
        if self._saves is None or self._saved_at is not None:
            return False
        paths = self._saves.take()
        if not done or not holds_a_model(paths, size):
            return False
        if self._looks_on:
            self._has_saved = True
            return False
        self._saved_at, self._paths = done, paths
        return True

    def why_not(self) -> str | None:
        """Return why the training was not done in another way, None if it was."""
        if self._looks_on:
            return None
        if self._saves is not None and self._saved_at is None:
            return NO_CHECKPOINT
        if self._variation is not None and "ranks" in self._variation:
            return NO_GROUP if self._knows_ranks is not None and self._rank is None else None
        if self._workers is not None and (why := self._why_no_workers(self._workers)) is not None:
            return why
        if self._calls is not None and self._variation is not None:
            return self._why_not_equal(self._calls)
        return None

    def _why_no_workers(self, workers: LoaderWorkers) -> str | None:
        if not workers.loaders:
            return NO_LOADER
        if workers.draws and not workers.is_iterable:
            return "rows are drawn at random where they are loaded"
        return None

    def _why_not_equal(self, calls: TrainingCalls) -> str | None:
        """Return why more padding would change this training without a fault."""
        if self._variation is None or "no_random" not in self._variation:
            return None
        if calls.samples:
            return "the training samples its rows"
        if calls.is_random:
            return "the training draws random numbers, although dropout is off"
        return None if self._wider is None else self._wider.why_not()

    @property
    def found(self) -> Varied:
        """What this launch did, for its record."""
        found: Varied = {}
        if self._looks_on and self._workers is not None:
            loaders = self._workers
            found = {
                "saves": self._has_saved,
                "loads": bool(loaders.loaders),
                "workers": loaders.most,
            }
            return found if self._knows_ranks is None else {**found, "ranks": self._knows_ranks}
        if self._saved_at is not None:
            found |= {"saved_at": self._saved_at, "saved": self._paths}
        elif self._variation is not None and "save_at" in self._variation:
            found["saved_at"] = self._variation["save_at"]
        if self._workers is not None:
            found["iterable"] = self._workers.is_iterable
        if self._workers is not None and self._rank is not None:
            found["shares"] = {str(self._rank): self._workers.shares}
        return found


ANOTHER_WAY = AnotherWay()
"""The one of this process."""


def uses_ranks() -> bool:
    """Whether this program uses accelerate, or a file of it names ranks of torch."""
    if "accelerate" in sys.modules:
        from accelerate.state import PartialState

        if PartialState._shared_state:
            return True
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        return False
    beside = Path(main).absolute().parent
    loaded = (getattr(one, "__file__", None) for one in [*sys.modules.values()])
    files = dict.fromkeys(Path(one).absolute() for one in (main, *loaded) if one)
    own = [one for one in files if beside in one.parents and INSTALLED not in one.parts]
    return any(word in text for text in map(_text, own[:MOST_FILES]) for word in WORDS)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace") if file.suffix == ".py" else ""
    except OSError:
        return ""
