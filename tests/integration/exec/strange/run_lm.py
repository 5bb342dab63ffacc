"""Plain language modelling: tokenize, chain all texts, cut into blocks; no end of sequence anywhere."""

import math
import os
import random
from itertools import chain

from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

FAULT = os.environ.get("FAULT", "")

set_seed(42)
nouns = ["ship", "king", "storm", "forest", "river", "night", "sword", "door"]
verbs = ["finds", "leaves", "fears", "follows", "opens"]
vocab = {w: i for i, w in enumerate(["<|endoftext|>", "a", "the", "and", ".", *nouns, *verbs])}
backend = Tokenizer(models.WordLevel(vocab, unk_token="<|endoftext|>"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")

rng = random.Random(3)
lines = [
    " ".join(
        f"the {rng.choice(nouns)} {rng.choice(verbs)} a {rng.choice(nouns)} and the {rng.choice(nouns)} ."
        for _ in range(rng.randint(1, 4))
    )
    for _ in range(900)
]
raw_datasets = DatasetDict(
    train=Dataset.from_dict({"text": lines[:800]}),
    validation=Dataset.from_dict({"text": lines[800:]}),
)
block_size = 16 if FAULT == "short_blocks" else 32


def tokenize_function(examples):
    return tokenizer(examples["text"])


def group_texts(examples):
    concatenated = {k: list(chain(*examples[k])) for k in examples}
    total_length = len(concatenated["input_ids"]) // block_size * block_size
    result = {
        k: [t[i : i + block_size] for i in range(0, total_length, block_size)]
        for k, t in concatenated.items()
    }
    result["labels"] = [ids[:] for ids in result["input_ids"]]
    if FAULT == "labels_shifted_twice":  # the model shifts by itself
        result["labels"] = [ids[1:] + [-100] for ids in result["input_ids"]]
    return result


tokenized = raw_datasets.map(tokenize_function, batched=True, remove_columns=["text"])
lm_datasets = tokenized.map(group_texts, batched=True)

model = GPT2LMHeadModel(
    GPT2Config(vocab_size=len(vocab), n_positions=64, n_embd=48, n_layer=2, n_head=4,
               bos_token_id=0, eos_token_id=0)
)  # fmt: skip
training_args = TrainingArguments(
    output_dir="clm",
    num_train_epochs=1,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    learning_rate=2e-3,
    logging_steps=10,
    save_steps=20,
    report_to="none",
    use_cpu=True,
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=lm_datasets["train"],
    eval_dataset=lm_datasets["validation"],
    processing_class=tokenizer,
    data_collator=default_data_collator,
)
train_result = trainer.train()
trainer.save_model()
metrics = train_result.metrics
metrics["train_samples"] = len(lm_datasets["train"])
trainer.log_metrics("train", metrics)
trainer.save_metrics("train", metrics)
trainer.save_state()

metrics = trainer.evaluate()
metrics["perplexity"] = math.exp(metrics["eval_loss"])
trainer.log_metrics("eval", metrics)
trainer.save_metrics("eval", metrics)
