"""Collect the exact lane's signals in the look, never in timed steps.

`canary.record.exact` has their types.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

from canary.record.exact import EVALUATION_MODE, Exact, FirstLoss, Micro
from canary.record.step_row import Row
from canary.training.collectors.aside import kept_apart, uncounted
from canary.training.collectors.batches import describe_batch
from canary.training.collectors.ran import RAN
from canary.training.exact.code import ran_code
from canary.training.exact.effective import LOSSES, effective_settings, own_method
from canary.training.exact.fingerprints import special_ids, stops_of
from canary.training.exact.operators import LiveTensors, WorkCounter, recompiles, why_uncounted
from canary.training.exact.parameters import (
    UpdateCapture,
    combined,
    describe_model,
    gradient_norms,
    parameter_digests,
    rounded_to,
)
from canary.training.exact.rollouts import add_rollout, watch_sampling

TIMES = ("step_time",)
"""Logged values that are clock readings, not metrics."""
WORK_STEP = 3
"""The step whose operators are counted: after the one-off work of the first steps."""


class Trained(Protocol):
    """The object to describe: a trainer, or the parts of a loop. A trainer may also have a
    `ref_model` and a `processing_class` (its tokenizer)."""

    @property
    def model(self) -> Any:
        """The module in training, or None if the loop did not name it."""


P = ParamSpec("P")
Made = TypeVar("Made")


def contained(
    method: Callable[Concatenate[ExactSignals, P], None],
) -> Callable[Concatenate[ExactSignals, P], None]:
    """Let no error of the method end a user's training."""

    @functools.wraps(method)
    def called(signals: ExactSignals, /, *args: P.args, **kwargs: P.kwargs) -> None:
        signals.contain(lambda: method(signals, *args, **kwargs))

    return called


class ExactSignals:
    """Listens to the training and describes everything that has no noise."""

    def __init__(
        self, trainer: Trained, work_step: int = WORK_STEP, *, whole_process: bool = True
    ) -> None:
        self._trainer = trainer
        self._work_step = work_step
        self._work: WorkCounter | None = None
        self._update: UpdateCapture | None = None
        self._live = LiveTensors(whole_process)
        # Inside a user's training, which the canary must not change.
        self._guest = not whole_process
        self.failed: str | None = None
        """Why the look ended early: an error of the canary in a user's training."""
        self.uncounted: str | None = None
        """Why the work of a step was not counted."""
        self._sampled = self.contain(lambda: watch_sampling(trainer))
        self.own_tensors: Callable[[], Iterable[torch.Tensor]] = tuple
        """Returns tensors of the canary, which are not part of the training's memory."""
        self._micro: list[Micro] = []
        self._initial: dict[str, bytes] = {}
        self._reference: dict[str, bytes] = {}
        self.trained_in_turn: frozenset[int] = frozenset()
        """Ids of parameters that train, though at times they ask for no gradient (GANs)."""
        # Here, before the canary wraps any of the trainer's methods.
        own = self.contain(lambda: own_method(trainer, LOSSES))
        self.found: Exact = {"batches": [], "evidence": {"own_loss": own}}

    def work_by(self, step: int) -> None:
        """Count the operators in this step at the latest."""
        self._work_step = min(self._work_step, step)

    def contain(self, call: Callable[[], Made]) -> Made | None:
        """Return what `call` makes; None if it fails in a user's training, or if one did before."""
        if self.failed is not None:
            return None
        if not self._guest:
            return call()
        with kept_apart(self.fail):
            return call()
        return None

    def fail(self, why: str) -> None:
        """End the look early."""
        self.failed = self.failed or why
        # What failed before may fail again while its hooks are removed.
        with contextlib.suppress(Exception):
            self.give_up()

    @contained
    def training_begins(self, done: int = 0) -> None:
        """Describe the initial model, once it is ready. `done`: steps before a resumed training."""
        self._work_step += done
        model = self._trainer.model
        self.found["evidence"]["settings"] = effective_settings(self._trainer)
        if model is not None:
            self._initial = parameter_digests(model)
            self.found["model"] = describe_model(model, self._initial)
        reference = self._reference_model()
        if reference is not None:
            self._reference = parameter_digests(reference)
            described = self.found.setdefault("model", {})
            described["reference_sha256"] = combined(self._reference)
            policy = getattr(model, "policy", None)
            if isinstance(policy, torch.nn.Module):
                described["policy_sha256"] = combined(parameter_digests(policy))
            sides = {"policy": model, "reference": reference}
            found = {name: rounded_to(side) for name, side in sides.items() if side is not None}
            described["rounded_to"] = {name: dtype for name, dtype in found.items() if dtype}
        self._live.freeze()
        self._begin_work_if_next(done)
        RAN.training_begins()

    def _reference_model(self) -> Any:
        reference = getattr(self._trainer, "ref_model", None)
        if reference is None:
            return None
        return getattr(reference, "module", reference)

    def _begin_work_if_next(self, done: int) -> None:
        if done + 1 != self._work_step:
            return
        self.uncounted = why_uncounted() if self._guest else None
        if self.uncounted is None:
            self._work = WorkCounter(self._trainer.model)
            self._work.begin()

    @contained
    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """Describe one micro-batch as it enters the loss."""
        with uncounted():
            described = describe_batch(inputs, special_ids(self._trainer), stops_of(self._trainer))
            not_sampled = self._sampled.not_sampled(inputs) if self._sampled else None
            if not_sampled is not None:
                described["not_sampled"] = not_sampled
            self._micro.append(described)

    def drop_micro_batches(self) -> None:
        """Forget the micro-batches of the running step."""
        self._micro = []

    @contained
    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Describe the inputs of a step's updates; the updates are then reported one by one."""
        with uncounted():
            add_rollout(self.found.setdefault("rollout", {"tokens": [], "signals": {}}), tensors)

    @contained
    def gradients_ready(self, again: bool = False) -> None:
        """Read the norms by module group before the first clip, or `again` after more was added."""
        if again or "first_gradient" not in self.found:
            with uncounted():
                self.found["first_gradient"] = gradient_norms(self._trainer.model)

    @contained
    def update_begins(self) -> None:
        """Copy the trainable parameters, before the first update only."""
        if self._update is None and "first_update" not in self.found:
            with uncounted():
                self._update = UpdateCapture(self._trainer.model)

    @contained
    def update_ended(self) -> None:
        """Describe what the first update changed, and note a step in evaluation mode."""
        model = self._trainer.model
        if model is not None and not model.training:
            settings = self.found["evidence"]["settings"]
            settings.setdefault(EVALUATION_MODE, len(self.found["batches"]) + 1)
        if self._update is not None:
            with uncounted():
                self.found["first_update"] = self._update.describe(self._trainer.model)
            self._update = None

    @contained
    def work_ends(self, step: int) -> None:
        """Close the counts of the step's work before logging and saving, so that the logging
        interval does not change them."""
        if self._work is not None:
            self.found["work"] = {"step": step, **self._work.end(), "recompiles": recompiles()}
            self._work = None

    @contained
    def step_ended(self, step: int) -> None:
        """Close the step's counts; `step` starts at 1."""
        self.work_ends(step)
        self.found["batches"].append(self._micro)
        self._micro = []
        self._live.count(self.own_tensors())
        self._begin_work_if_next(step)

    def give_up(self) -> None:
        """Stop all counting: the training has ended or failed."""
        if self._work is not None:
            self._work.end()
            self._work = None
        self._live.release()
        RAN.end()

    @contained
    def training_ended(self) -> None:
        """Add memory per step, and whether frozen parameters or the reference model changed."""
        self.give_up()
        self.found["code"] = ran_code()
        if not any(self.found["batches"]):
            del self.found["batches"]  # a user's loop that reported no batch
        self.found["memory"] = {
            "live_tensors": self._live.counts,
            "live_bytes": self._live.bytes,
            "start_bytes": self._live.start_bytes,
            "peak_bytes": (
                torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None
            ),
        }
        model = self._trainer.model
        if model is None:
            return
        final = parameter_digests(model)
        # What an optimizer holds is trained in turn, as sampled layers are.
        groups = getattr(getattr(self._trainer, "optimizer", None), "param_groups", ())
        held = self.trained_in_turn | {id(value) for group in groups for value in group["params"]}
        frozen = [
            name
            for name, value in model.named_parameters()
            if not value.requires_grad and id(value) not in held
        ]
        reference = self._reference_model()
        self.found["frozen"] = {
            "tensors": len(frozen),
            "changed": sorted(n for n in frozen if final[n] != self._initial.get(n)),
            "reference_changed": (
                None if reference is None else parameter_digests(reference) != self._reference
            ),
            "final_parameters_sha256": combined(final),
        }

    @contained
    def add_rows(self, rows: list[Row]) -> None:
        """Add losses, gradient norms, learning rates and RL metrics from the rows of the steps."""
        if rows:
            losses = rows[0]["micro_losses"]
            first: FirstLoss = {"loss": rows[0]["loss"], "micro_losses": losses}
            if "rollout" in self.found and losses:
                # With several updates per step, only the first one has the initial parameters.
                first = {"loss": losses[0], "micro_losses": losses[:1], "updates": losses}
            self.found["first_loss"] = first
        names = sorted({name for row in rows for name in row["rl"]} - set(TIMES))
        self.found["trajectory"] = {
            "losses": [row["loss"] for row in rows],
            "grad_norms": [row["grad_norm"] for row in rows],
            "learning_rates": [row["learning_rate"] for row in rows],
            "rl": {name: [row["rl"].get(name) for row in rows] for name in names},
        }


class _Blind(ExactSignals):
    def __init__(self) -> None:
        self.failed = "there is no look"

    def fail(self, why: str) -> None:
        """Nothing can fail."""


BLIND: ExactSignals = _Blind()
"""Takes all events and sees nothing: there is no look, or it is over."""
