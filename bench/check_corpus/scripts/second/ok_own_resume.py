"""accelerate with a checkpoint every third update. Starts again where the last one was written.

The schedule warms up, holds, and falls with the root of the remaining steps.
"""

import os
import shutil

import torch
from accelerate import Accelerator
from kitchen import load_tokenizer, recipes, sizes
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

STATE = os.path.join(os.environ.get("RUN_DIR", "run_kitchen"), "state")
UPDATES, EVERY, ACCUMULATE, WARM, FALL = 9, 3, 2, 2, 3


def factor(update):
    if update < WARM:
        return (update + 1) / WARM
    if update < UPDATES - FALL:
        return 1.0
    return max(0.0, 1 - ((update - UPDATES + FALL + 1) / (FALL + 1)) ** 0.5)


class Progress:
    def __init__(self):
        self.update = self.epoch = self.batch = 0

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


def loader_of(rows, epoch, collate):
    gen = torch.Generator().manual_seed(1000 + epoch)
    order = torch.randperm(len(rows), generator=gen).tolist()
    return DataLoader(
        [rows[i] for i in order], batch_size=4, collate_fn=collate, drop_last=True, generator=gen
    )


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(156)
    tok = load_tokenizer()
    rows = recipes(44, seed=156)

    def collate(part):
        batch = tok(
            [f"{r['prompt']} {r['answer']}{tok.eos_token}" for r in part],
            padding=True,
            return_tensors="pt",
        )
        return {
            **batch,
            "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100),
        }

    model = LlamaForCausalLM(LlamaConfig(**sizes(tok), attention_dropout=0.1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    model, optimizer = accelerator.prepare(model, optimizer)
    progress = Progress()
    accelerator.register_for_checkpointing(schedule, progress)
    if os.path.isdir(STATE):
        accelerator.load_state(STATE)
        accelerator.print("resumed at update", progress.update)
    model.train()
    waiting = []
    while progress.update < UPDATES:
        loader = accelerator.prepare_data_loader(loader_of(rows, progress.epoch, collate))
        for batch in accelerator.skip_first_batches(loader, progress.batch):
            progress.batch += 1
            waiting.append(batch)
            if len(waiting) < ACCUMULATE:
                continue
            tokens = sum((b["labels"][:, 1:] != -100).sum() for b in waiting)
            tokens = accelerator.reduce(tokens, "sum") / accelerator.num_processes
            total = 0.0
            for b in waiting:
                loss = model(**b, num_items_in_batch=tokens).loss
                accelerator.backward(loss)
                total += loss.item()
            waiting = []
            lr = optimizer.param_groups[0]["lr"]
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            progress.update += 1
            accelerator.print(f"{progress.update} loss {total:.4f} lr {lr:.5f}")
            if progress.update % EVERY == 0 and progress.update < UPDATES:
                accelerator.save_state(STATE)
            if progress.update == UPDATES:
                break
        else:
            waiting = []
            progress.epoch, progress.batch = progress.epoch + 1, 0
    shutil.rmtree(os.path.dirname(STATE), ignore_errors=True)


if __name__ == "__main__":
    main()
