"""Proximal policy optimization of a language model: each step is a rollout and its updates.

Read it from top to bottom: `train` is the loop, `_collect` samples and scores completions,
`_update` learns from them. The formulas are in `objective`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerControl, TrainerState
from transformers.trainer_utils import TrainOutput, set_seed

from canary.training.loops.train_override import Unwatched
from canary.training.trainers.ppo import objective
from canary.training.trainers.ppo.figures import Figures, moments_of_ranks, rollout_metrics
from canary.training.trainers.ppo.model import ActorCritic, Reference, Request, evaluate
from canary.training.trainers.ppo.objective import Experience, KLCoefficient, experience
from canary.training.trainers.ppo.rollout import (
    PromptCollator,
    Prompts,
    Rollout,
    Sampling,
    Splitter,
    sample,
)
from canary.training.trainers.ppo.scoring import Samples, Scorer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from canary.training.trainers.ppo.building import PPOArguments, Switches

EARLY_STOP = 1.5
"""Times `target_kl`: beyond it a step makes no more updates (Achiam 2018, Spinning Up)."""


class PPOTrainer(Trainer):
    """One step of the canary is one rollout and all updates on it."""

    args: PPOArguments
    state: TrainerState
    control: TrainerControl
    optimizer: Any

    def __init__(
        self,
        *,
        model: ActorCritic,
        reference: Any | None,
        scorer: Scorer,
        args: PPOArguments,
        switches: Switches,
        train_dataset: Any,
        processing_class: PreTrainedTokenizerBase,
        callbacks: Any = None,
    ) -> None:
        """`reference`: a frozen copy of the policy, or None for the policy without its adapter."""
        super().__init__(
            model=model,
            args=args,
            data_collator=PromptCollator(processing_class, switches.prompt_width),
            train_dataset=train_dataset,
            callbacks=callbacks,
            processing_class=processing_class,
        )
        self._train_batch_size = args.rollout_size
        self.accelerator.gradient_accumulation_steps = 1  # a mini-batch's loss is one sum
        self.watch = Unwatched()
        self.tokenizer_in_use = processing_class
        self.scorer = scorer
        self.switches = switches
        self.ref_model = None if reference is None else reference.to(args.device)
        self.reference = Reference(self.ref_model, model.policy)
        target = args.target if args.adap_kl_ctrl else None
        self.kl_coefficient = KLCoefficient(args.init_kl_coef, target, args.horizon)
        self.sampling = Sampling(
            args.max_new_tokens,
            args.temperature,
            processing_class.eos_token_id,
            processing_class.pad_token_id,
            args.fixed_length,
            switches.rows_at_once,
            args.max_new_tokens if switches.fixed_width else None,
            switches.generation,
        )
        self._split = Splitter(args.mini_batch, args.per_device_train_batch_size, switches.bucketed)
        self._request = Request(args.temperature, whole=switches.whole_logprobs)

    def train(self, *_: Any, **__: Any) -> TrainOutput:
        """Run `max_steps` steps from the beginning."""
        self._set_up()
        prompts = self._prompts()
        losses = 0.0
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        for step in range(1, self.args.max_steps + 1):
            self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
            with self.watch.phase("data"):
                batch = next(prompts)
            collected = self._collect(batch)
            metrics = self._update(collected)
            metrics |= rollout_metrics(collected, self.kl_coefficient.value, self.sampling.eos_id)
            completions = len(collected.rollout) * self.accelerator.num_processes
            self.kl_coefficient.update(metrics["kl_sequence"], completions)
            losses += metrics["loss"]
            self._end_step(step, metrics)
            if self.control.should_training_stop:
                break
        self.is_in_train = False
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        done = self.state.global_step
        return TrainOutput(done, losses / done, {})

    def _set_up(self) -> None:
        """Set the seed (a different one per rank), and create optimizer and schedule."""
        arguments = self.args
        set_seed(arguments.seed + self.accelerator.process_index)
        self.create_optimizer_and_scheduler(arguments.max_steps)
        self.model_wrapped, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        self.state.global_step = 0
        self.state.max_steps = arguments.max_steps
        self.state.compute_steps(arguments, arguments.max_steps)
        self.is_in_train = True
        handler = self.callback_handler
        handler.model, handler.optimizer = self.model, self.optimizer
        handler.lr_scheduler = self.lr_scheduler
        handler.train_dataloader = self.get_train_dataloader()

    def _prompts(self) -> Iterator[Prompts]:
        """Yield batches of prompts forever; each epoch has a new order."""
        while True:
            for batch in self.callback_handler.train_dataloader:
                device = self.args.device
                yield Prompts(batch["ids"].to(device), batch["mask"].to(device), batch["rows"])

    def _collect(self, prompts: Prompts) -> Experience:
        """Sample a rollout with the current policy, score it, and estimate its advantages."""
        evaluate(self.model)
        with self.watch.phase("generation"), self.accelerator.autocast():
            rollout = sample(self.model, prompts, self.sampling)
        with self.watch.phase("reward"):
            raw = scores = self._scores(prompts, rollout)
            if self.args.missing_eos_penalty is not None:
                missing = ~rollout.ended(self.sampling.eos_id)
                scores = raw - self.args.missing_eos_penalty * missing.float()
            rollout = rollout.with_(raw_scores=raw, scores=scores)
        with self.watch.phase("logprob"):
            rollout = self._with_model_outputs(rollout)
        with self.watch.phase("advantage"):
            found = experience(
                rollout,
                self.args,
                self.kl_coefficient.value,
                lambda values, mask: moments_of_ranks(values, mask, self.accelerator),
                by_loop=self.switches.advantages_by_loop,
            )
        self.watch.rollout(found.rollout.tensors())
        return found

    def _scores(self, prompts: Prompts, rollout: Rollout) -> torch.Tensor:
        """Return (rows,): the scores of the reward model or functions."""
        texts = self.tokenizer_in_use.batch_decode(rollout.completion_ids, skip_special_tokens=True)
        scores = self.scorer.score(Samples(prompts.rows, texts, rollout))
        return scores.to(rollout.completion_ids.device, torch.float32)

    def _with_model_outputs(self, rollout: Rollout) -> Rollout:
        """Return the rollout with log-probabilities of policy and reference, values and entropy.
        It uses the micro-batches of the first epoch, so that their first ratio is exactly 1."""
        found: dict[str, torch.Tensor] = {}

        def keep(name: str, rows: torch.Tensor, value: torch.Tensor) -> None:
            whole = found.setdefault(
                name, torch.zeros_like(rollout.completion_ids, dtype=torch.float32)
            )
            whole[rows, : value.shape[1]] = value.float()

        with torch.no_grad():
            for rows in itertools.chain.from_iterable(self._split.of(rollout)):
                micro = self._micro(rollout, rows)
                logprobs, values, entropy = self._forward(micro, with_entropy=True)
                keep("logprobs", rows, logprobs)
                keep("values", rows, values)
                keep("entropy", rows, entropy)
                keep("reference_logprobs", rows, self._reference_logprobs(micro))
        mask = rollout.completion_mask
        return rollout.with_(**{n: objective.kept(value, mask) for n, value in found.items()})

    def _micro(self, rollout: Rollout, rows: torch.Tensor) -> Rollout:
        taken = rollout.take(rows)
        return taken if self.switches.fixed_width else taken.trimmed()

    def _reference_logprobs(self, micro: Rollout) -> torch.Tensor:
        length = micro.completion_ids.shape[1]
        with self.accelerator.autocast():
            return self.reference.logprobs(
                micro.input_ids, micro.attention_mask, length, self._request
            )

    def _forward(
        self, micro: Rollout, *, with_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probabilities, values and entropy of a micro-batch, each (rows, tokens).
        Without `with_entropy` the entropy is 0."""
        model = self.model_wrapped if self.model.training else self.model
        inputs = (micro.input_ids, micro.attention_mask, micro.completion_ids.shape[1])
        if self.args.torch_compile:
            for tensor in inputs[:2]:
                # One graph for all widths; otherwise the first width gets a separate graph.
                torch._dynamo.maybe_mark_dynamic(tensor, 1)
        request = replace(self._request, entropy=with_entropy)
        if self.switches.shared_forward:
            found = model(*inputs, request)
            values = found.values
        else:
            found = model(*inputs, replace(request, values=False))
            values = model(*inputs, replace(request, logprobs=False, entropy=False)).values
        entropy = found.entropy if with_entropy else torch.zeros_like(found.log_probs)
        return found.log_probs, values, entropy

    def _update(self, collected: Experience) -> dict[str, float]:
        """Make all updates on a rollout; return their mean metrics."""
        rollout, arguments = collected.rollout, self.args
        figures = Figures(self.accelerator)
        self.model.train()
        for epoch in range(arguments.ppo_epochs):
            order = None if epoch == 0 else torch.randperm(len(rollout))
            for mini in self._split.of(rollout, order):
                self._differentiate(rollout, mini, figures)
                if arguments.target_kl and figures.approx_kl() > EARLY_STOP * arguments.target_kl:
                    self.optimizer.zero_grad()
                    return figures.means()
                if arguments.max_grad_norm:
                    self.accelerator.clip_grad_norm_(
                        self.model.parameters(), arguments.max_grad_norm
                    )
                self.optimizer.step()
                self.optimizer.zero_grad()
                figures.updated()
        return figures.means()

    def _differentiate(self, rollout: Rollout, mini: list[torch.Tensor], figures: Figures) -> None:
        """Compute the gradient of one mini-batch (a mean over its tokens) by micro-batches."""
        tokens = figures.begin(rollout.completion_mask[torch.cat(mini)].sum())
        for place, rows in enumerate(mini, start=1):
            micro = self._micro(rollout, rows)
            # Ranks exchange gradients once.
            last = place == len(mini)
            with nullcontext() if last else self.accelerator.no_sync(self.model_wrapped):
                with self.watch.phase("forward"):
                    loss = self._loss(micro, tokens, figures)
                self.accelerator.backward(loss * self.accelerator.num_processes)
        self.watch.loss(figures.end())

    def _loss(self, micro: Rollout, tokens: torch.Tensor, figures: Figures) -> torch.Tensor:
        """Return the micro-batch's part of the loss of its mini-batch of `tokens` on all ranks."""
        arguments, mask = self.args, micro.completion_mask
        assert micro.logprobs is not None
        assert micro.values is not None
        assert micro.advantages is not None
        assert micro.returns is not None
        with_bonus = arguments.ent_coef > 0
        logprobs, values, entropy = self._forward(micro, with_entropy=with_bonus)
        policy = objective.policy_loss(
            logprobs, micro.logprobs, micro.advantages, mask, arguments.cliprange
        )
        value = objective.value_loss(
            values, micro.values, micro.returns, mask, arguments.cliprange_value
        )
        loss = policy.total + arguments.vf_coef * value.total
        bonus = objective.kept(entropy, mask).sum() if with_bonus else None
        if bonus is not None:
            loss = loss - arguments.ent_coef * bonus
        figures.add(policy, value, logprobs - micro.logprobs, mask, loss, bonus)
        return loss / tokens

    def _end_step(self, step: int, metrics: dict[str, float]) -> None:
        """Count the step, report it, and log and save if the callbacks ask for it."""
        rate = self.lr_scheduler.get_last_lr()[0]
        self.lr_scheduler.step()
        self.state.global_step = step
        seen = step * self.args.rollout_size * self.accelerator.num_processes
        self.state.epoch = seen / len(self.train_dataset)
        self.watch.metrics(metrics)
        self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
        with self.watch.phase("logging"):
            if self.control.should_log:
                self.log({"loss": metrics["loss"], **metrics, "learning_rate": rate})
            if self.control.should_save:
                self._save_checkpoint(self.model, trial=None)
                self.control = self.callback_handler.on_save(self.args, self.state, self.control)
        self.watch.step_over()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the policy in transformers' format, with its tokenizer and the value head."""
        folder = output_dir or self.args.output_dir
        self.model.policy.save_pretrained(folder)
        self.tokenizer_in_use.save_pretrained(folder)
        torch.save(self.model.value_head.state_dict(), Path(folder) / "value_head.pt")
