"""A training loop in plain PyTorch with the canary's Recorder: `canary exec -- python
examples/loop.py`.

The model and the data are those that the canary brings along; nothing is downloaded.
"""

import json
import os

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from canary import Recorder
from canary.inputs.embedded import data_file, tiny_dir

LEARNING_RATE = 5e-4
BATCH_SIZE = 4
STEPS = int(os.environ.get("STEPS", "40"))


def main() -> None:
    """Trains the embedded model, each step recorded."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(tiny_dir())
    model = AutoModelForCausalLM.from_pretrained(tiny_dir()).train()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)

    with data_file("prompt_completion").open() as stream:
        rows = [json.loads(line) for line in stream][: STEPS * BATCH_SIZE]
    texts = [
        tokenizer.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
        for row in rows
    ]

    def collate(part: list[str]) -> dict[str, torch.Tensor]:
        batch = tokenizer(part, padding=True, return_tensors="pt", add_special_tokens=False)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        return {**batch, "labels": labels}

    loader = DataLoader(texts, BATCH_SIZE, collate_fn=collate)
    settings = {"batch_size": BATCH_SIZE, "seed": 0}
    with Recorder(
        "loop", model=model, optimizer=optimizer, tokenizer=tokenizer, config=settings
    ) as recorder:
        for batch in recorder.batches(loader):
            batch = {name: value.to(model.device) for name, value in batch.items()}
            with recorder.step(batch) as step:
                with step.phase("forward"):
                    loss = model(**batch).loss
                step.loss(loss)
                with step.phase("backward"):
                    loss.backward()
                step.grad_norm(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
