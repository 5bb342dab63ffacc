"""Options as key=value over defaults in a dictionary, written beside the results as used."""

import json
import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

config = {
    "seed": 1337,
    "out_dir": "kv",
    "model": {"n_layer": 2, "n_head": 4, "n_embd": 48, "dropout": 0.0},
    "train": {"lr": 1e-3, "batch_size": 8, "max_steps": 30, "beta2": 0.99, "weight_decay": 0.1},
    "data": {"rows": 320, "length": 20},
}
for arg in sys.argv[1:]:
    key, value = arg.split("=", 1)
    node = config
    *path, last = key.split(".")
    for part in path:
        node = node[part]
    assert last in node, f"unknown option {key}"
    node[last] = type(node[last])(value)
    print(f"overriding: {key} = {node[last]}")

set_seed(config["seed"])
data, train = config["data"], config["train"]
base = torch.arange(data["rows"]).unsqueeze(1)
if os.environ.get("FAULT") == "data_order":
    base = base.flip(0)
ids = (base * 11 + torch.arange(data["length"]) * (base % 5 + 1)) % 63 + 1
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_layer=config["model"]["n_layer"],
        n_head=config["model"]["n_head"],
        n_embd=config["model"]["n_embd"],
        resid_pdrop=config["model"]["dropout"],
        embd_pdrop=config["model"]["dropout"],
        attn_pdrop=config["model"]["dropout"],
        bos_token_id=0,
        eos_token_id=0,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=config["out_dir"],
        learning_rate=train["lr"],
        per_device_train_batch_size=train["batch_size"],
        max_steps=train["max_steps"],
        adam_beta2=train["beta2"],
        weight_decay=train["weight_decay"],
        logging_steps=5,
        save_steps=15,
        save_total_limit=1,
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=[{"input_ids": row, "labels": row} for row in ids],
)
trainer.train()
os.makedirs(config["out_dir"], exist_ok=True)
with open(os.path.join(config["out_dir"], "config.json"), "w") as f:
    json.dump(config, f, indent=2)
torch.save(model.state_dict(), os.path.join(config["out_dir"], "last.ckpt"))
