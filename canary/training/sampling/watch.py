"""Watches the sampling of one training, from the start of the process to its last update."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from canary.errors import UsageError
from canary.protocol.failure import one_line
from canary.relations import reported
from canary.relations.sampling import Reward, Sampling
from canary.training.collectors.uncounted import uncounted
from canary.training.random_states import random_states
from canary.training.relations.calls import KeptCall, autocast_now, bound, said_of, undisturbed
from canary.training.relations.scored import ScoredRows
from canary.training.sampling.engines import EngineFile, EngineFiles
from canary.training.sampling.following import Following
from canary.training.sampling.kept import compared_kept, of_engine, of_policy, paired
from canary.training.sampling.matching import Match, compared, matches
from canary.training.sampling.ratios import compared_cut
from canary.training.sampling.reward_models import asked_model
from canary.training.sampling.rewards import asked
from canary.training.sampling.samples import Sampled, told
from canary.training.sampling.trainers import (
    reward_models,
    samples,
    watch_rewards,
    watch_rollouts,
)
from canary.training.sampling.weights import Prints, Versions, floats_of, print_of, printed, shares

RELATIONS = (
    "sampler_logprobs",
    "sampler_weights",
    "reward_function",
    "reference_start",
    "identities",
)
ITSELF, OTHER, REPORTED = "the trained model", "another model of this process", "the loop's engine"
ELSEWHERE = "the model of another process"


class SamplingWatch:
    """Takes what samples, then compares it when an update begins."""

    def __init__(self) -> None:
        self.found = Sampling()
        self.owner: object = None
        """What takes the findings."""
        self.paused = False
        """Whether the canary itself calls models now."""
        self._following = Following()
        self._folder: Path | None = None
        self._engines: EngineFiles | None = None
        self._depth = 0
        self._autocast: torch.dtype | None = None
        """That of the running call."""
        self._handles: list[Any] = []
        self._told: list[Sampled] = []
        self._kept: list[Sampled] = []
        """Completions with the log-probabilities that the loss takes as the old ones."""
        self._engine: Prints | None = None
        self._versions = Versions()
        self._asked: dict[int, Any] = {}
        """Reward functions and models that were asked, by id."""
        self._reward_models: dict[int, nn.Module] = {}
        self.samplers: set[int] = set()
        """Ids of the models that sampled."""
        self.scored = ScoredRows()
        self.matches: list[Match] = []
        """Where the newest update trains on sampled rows."""
        self.prompts: Counter[tuple[int, ...]] = Counter()
        """How often each prompt was sampled for before the newest update."""

    def begin(self, folder: Path | None = None) -> None:
        """Watch this process; twice is once. `folder`: where child processes tell what they
        sample."""
        if self._handles:
            return
        if folder is not None:
            self._folder, self._engines = folder, EngineFiles(folder)
            os.register_at_fork(after_in_child=functools.partial(self._forked, folder))
        self._following.begin(self.safely)
        self._handles = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
        ]
        reported.listen(self)

    def _forked(self, folder: Path) -> None:
        """Tell the process that trains what this child samples."""
        self._following.taken()
        self._following.file = EngineFile(folder)

    def end(self) -> None:
        """Watch no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._following.end()
        reported.listen(None)

    # Calls of models.

    def _enters(self, module: nn.Module, args: Any) -> None:
        self._depth += 1
        self._autocast = self._autocast or autocast_now()

    def _leaves(self, module: nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        autocast, self._autocast = self._autocast, None
        if self.paused or torch.compiler.is_compiling():
            return
        with uncounted(), torch.no_grad(), contextlib.suppress(Exception):
            self.scored.called(module, args, kwargs, output)
        with uncounted(), torch.no_grad(), self.safely():
            known = said_of(output)
            if known is not None and known[1].requires_grad:
                return
            if known is not None and self._rewards(module, known[1]):
                self._reward_call(module, bound(module, args, kwargs), known[1], autocast)
            if known is None or known[0] != "logits" or known[1].dim() != 3:
                return
            named = bound(module, args, kwargs)
            ids = named.get("input_ids", next(iter(named.values()), None))
            self._tells_parent()
            self._following.called(module, ids, named.get("attention_mask"), known[1])

    def _tells_parent(self) -> None:
        """Tell what is sampled if this is a child that was not forked: it knows so only now."""
        untold = self._folder is not None and self._following.file is None
        if untold and multiprocessing.parent_process() is not None:
            assert self._folder is not None
            self._following.file = EngineFile(self._folder)

    def _rewards(self, module: nn.Module, said: torch.Tensor) -> bool:
        """Whether a call rewards completions: one number per row, after something was sampled."""
        if id(module) in self._reward_models:
            return said.dim() == 2
        alone = said.dim() == 2 and said.shape[1] == 1 and not module.training
        return alone and (self._following.active or bool(self._told))

    def _reward_call(
        self,
        module: nn.Module,
        named: dict[str, Any],
        said: torch.Tensor,
        autocast: torch.dtype | None,
    ) -> None:
        """Ask a reward model again, after its first call."""
        if id(module) in self._asked:
            return
        self._asked[id(module)] = module
        call = KeptCall(module, named, tuple(said.shape), module.training, "logits")
        call.autocast = autocast
        with self.aside(), undisturbed(module):
            self.found.rewards.append(asked_model(call))

    # Reports of a loop; see `canary.relations.reported`.

    def sampled(
        self, ids: Any, log_probs: Any, prompt_lengths: Any, mask: Any, temperature: float | None
    ) -> None:
        """Take sequences that an engine sampled."""
        with uncounted(), readable("canary.sampled", "rows of numbers"):
            self._told += told(ids, log_probs, prompt_lengths, mask, temperature)
        self.found.expected = True

    def engine_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Take the engine's weights; the last ones before an update count."""
        with uncounted(), torch.no_grad(), readable("canary.engine_weights", "names and tensors"):
            self._engine = printed(weights)
        self.found.expected = True

    def rewarded(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a reward function; after its first call, ask it again."""
        if id(function) in self._asked:
            return function(*args, **kwargs)
        self._asked[id(function)] = function
        restore = random_states(devices=False)
        result = function(*args, **kwargs)
        self._ask(function, args, kwargs, result, restore)
        return result

    async def awaited(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Do as `rewarded` for an async function."""
        if id(function) in self._asked:
            return await function(*args, **kwargs)
        self._asked[id(function)] = function
        restore = random_states(devices=False)
        result = await function(*args, **kwargs)
        self._ask(function, args, kwargs, result, restore)
        return result

    def _ask(
        self, function: Callable[..., Any], args: Any, kwargs: Any, result: Any, restore: Any
    ) -> None:
        name = str(getattr(function, "__name__", type(function).__name__))
        with self.aside():
            try:
                found = asked(function, args, kwargs, result, restore)
            except Exception as error:  # noqa: BLE001 - it must not reach the training
                found = Reward(name, 0, "", unasked=f"it cannot be called again: {one_line(error)}")
            self.found.rewards.append(found)

    def belongs_to(self, owner: object, trainer: Any) -> None:
        """Watch for this owner, and forget what an earlier loop showed. `trainer`: what a trainer
        of trl or of the canary samples, takes and rewards is watched too."""
        self.owner, self._versions = owner, Versions()
        reported_before = bool(self._told) or self._engine is not None
        self.found = Sampling(rewards=self.found.rewards, expected=reported_before)
        self.found.expected |= samples(trainer)
        self._reward_models |= {id(one): one for one in reward_models(trainer)}
        watch_rewards(trainer, self)
        watch_rollouts(trainer, self._rollout)

    def _rollout(self, tensors: Mapping[str, Any]) -> None:
        """Take completions with the log-probabilities that a trainer keeps of them."""
        if self._handles and torch.is_tensor(tensors.get("completion_ids")):
            with uncounted(), self.safely():
                self._told += of_engine(tensors)
                self._kept += of_policy(tensors)

    @contextlib.contextmanager
    def safely(self) -> Iterator[None]:
        """Note what goes wrong inside: it must not reach the training."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a user's model may refuse or return anything
            self.found.failed = f"sampling cannot be followed: {one_line(error)}"

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Ask beside the training: what is called inside is no part of it."""
        before, self.paused = self.paused, True
        try:
            with uncounted():
                yield
        finally:
            self.paused = before

    # Updates.

    def update_begins(
        self,
        update: int,
        model: nn.Module,
        calls: Sequence[KeptCall],
        temperature: float | None,
    ) -> None:
        """Compare what was sampled since the last update with what is trained now.

        Args:
            update: number of the update, from 1.
            model: the policy, with the weights that it has before the update.
            calls: its calls of this update, whose loss trained it.
            temperature: of the trainer's log-probabilities, if the trainer says it.
        """
        drawn, reports, kept = self._following.taken(), self._told, self._kept
        self._told, self._kept = [], []
        others = self._engines.taken() if self._engines is not None else []
        self.samplers |= {id(one.engine) for one in drawn}
        trained = self.matches = matches([*reports, *drawn, *others], calls)
        used = [one.sampled for one in trained if one.sampled.elsewhere]
        if self._engines is not None:
            self._engines.trained(used)
        self.found.sampled += len(drawn) + len(reports) + len(used)
        self.prompts = Counter(one.prompt for one in [*reports, *drawn, *used])
        sources: dict[str, list[Any]] = {}
        for match in trained:
            sources.setdefault(self._source(match.sampled, model), []).append(match)
        for source, found in sources.items():
            one = compared(found, update, source, temperature)
            self.found.rounds.append(one)
            trained_at = one.temperatures[1] if one.temperatures else temperature or 1.0
            cut = compared_cut(found, update, trained_at, one.allowed)
            self.found.rounds += [cut] if cut is not None else []
        pairs = paired([*reports, *drawn], kept)
        if pairs and calls:
            self.found.rounds.append(compared_kept(pairs, calls[0], update, temperature))
        self._weights(update, model, [one.sampled.engine for one in trained])
        self._versions.keep(model)

    def _source(self, sampled: Sampled, model: nn.Module) -> str:
        if sampled.engine is None:
            return ELSEWHERE if sampled.elsewhere else REPORTED
        return ITSELF if shares(sampled.engine, model) else OTHER

    def _weights(self, update: int, model: nn.Module, engines: Sequence[nn.Module | None]) -> None:
        prints: list[tuple[Prints, str]] = []
        if self._engine is not None:
            prints.append((self._engine, REPORTED))
            self._engine = None
        for engine in {id(one): one for one in engines if one is not None}.values():
            if not shares(engine, model):
                prints.append(({name: print_of(one) for name, one in floats_of(engine)}, OTHER))
        for found, source in prints:
            one = self._versions.compare(found, model, update, source)
            if one is None:
                self.found.failed = "engine and trainer share no tensor of the same name and shape"
            else:
                self.found.weights.append(one)


@contextlib.contextmanager
def readable(function: str, what: str) -> Iterator[None]:
    """Say in one line what a report of a user's loop lacks.

    Raises:
        UsageError: what was given cannot be read.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{function} cannot read its arguments: {one_line(error)}",
            f"pass {what}: docs/check.md has the arguments",
        ) from error


SAMPLING = SamplingWatch()
"""The one of this process."""
