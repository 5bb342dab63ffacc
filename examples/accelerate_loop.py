"""An accelerate loop with gradient accumulation and the canary's Recorder.

`canary exec -- python examples/accelerate_loop.py`, or `accelerate launch` in place of `python`. A
`recorder.step` in which the optimizer does not step is a micro-batch of the step that follows,
which is what accelerate's accumulation makes of it.
"""

import json
import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from canary import Recorder
from canary.inputs.embedded import data_file, tiny_dir

BATCH_SIZE = 2
ACCUMULATION = 2
STEPS = int(os.environ.get("STEPS", "40"))


def main() -> None:
    """Trains with gradient accumulation, each micro-batch told to the Recorder."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATION, cpu=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny_dir())
    model = AutoModelForCausalLM.from_pretrained(tiny_dir()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, STEPS)

    with data_file("prompt_completion").open() as stream:
        rows = [json.loads(line) for line in stream][: STEPS * BATCH_SIZE * ACCUMULATION]

    def collate(part: list[dict]) -> dict[str, torch.Tensor]:
        texts = [
            tokenizer.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
            for row in part
        ]
        batch = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return {**batch, "labels": labels}

    loader = DataLoader(rows, BATCH_SIZE, collate_fn=collate)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    with Recorder(
        "accelerate-loop",
        model=model,
        optimizer=optimizer,
        tokenizer=tokenizer,
        config={"batch_size": BATCH_SIZE, "gradient_accumulation_steps": ACCUMULATION},
    ) as recorder:
        for batch in recorder.batches(loader):
            with recorder.step(batch) as step, accelerator.accumulate(model):
                with step.phase("forward"):
                    loss = model(**batch).loss
                step.loss(loss)
                with step.phase("backward"):
                    accelerator.backward(loss)
                if accelerator.sync_gradients:
                    step.grad_norm(accelerator.clip_grad_norm_(model.parameters(), 1.0))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
