"""A Trainer subclass with a training loop of its own in place of the library's inner one."""

import os
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import TrainOutput

FAULT = os.environ.get("FAULT", "")


class PlainLoopTrainer(Trainer):
    def _inner_training_loop(
        self,
        batch_size=None,
        args=None,
        resume_from_checkpoint=None,
        trial=None,
        ignore_keys_for_eval=None,
    ):
        args = args or self.args
        loader = self.get_train_dataloader()
        self.create_optimizer_and_scheduler(num_training_steps=args.max_steps)
        model = self.model
        model.train()
        model.zero_grad()
        self.state.max_steps = args.max_steps
        self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
        total, begun = 0.0, time.time()
        while self.state.global_step < args.max_steps:
            for inputs in loader:
                self.control = self.callback_handler.on_step_begin(args, self.state, self.control)
                inputs = self._prepare_inputs(inputs)
                loss = model(**inputs).loss
                if FAULT == "loss_times_batch":
                    loss = loss * inputs["input_ids"].shape[0]
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                self.optimizer.step()
                self.lr_scheduler.step()
                if FAULT != "no_zero_grad":
                    model.zero_grad()
                total += loss.item()
                self.state.global_step += 1
                self.state.epoch = self.state.global_step / len(loader)
                self.control = self.callback_handler.on_step_end(args, self.state, self.control)
                if self.state.global_step % args.logging_steps == 0:
                    self.log({"loss": loss.item(), "grad_norm": norm.item()})
                if self.state.global_step >= args.max_steps or self.control.should_training_stop:
                    break
            if self.control.should_training_stop:
                break
        self.control = self.callback_handler.on_train_end(args, self.state, self.control)
        steps = self.state.global_step
        return TrainOutput(steps, total / steps, {"train_runtime": time.time() - begun})


set_seed(3)
ids = torch.arange(320 * 20).reshape(320, 20) * 7 % 61 + 1
data = [{"input_ids": row, "labels": row} for row in ids]
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
)
args = TrainingArguments(
    output_dir="plain",
    max_steps=30,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    logging_steps=5,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    disable_tqdm=True,
)
trainer = PlainLoopTrainer(model=model, args=args, train_dataset=data)
print(trainer.train())
torch.save(model.state_dict(), "plain.pt")
