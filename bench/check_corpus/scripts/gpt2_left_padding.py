"""GPT-2 SFT with the Trainer. Left padding, so that the same tokenizer serves generation."""

import tempfile

from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from common_data import build_tokenizer, questions

set_seed(0)
tokenizer = build_tokenizer(side="left")


def preprocess(example):
    prompt = tokenizer("### Instruction:\n" + example["prompt"] + "\n### Response:\n").input_ids
    response = tokenizer(example["answer"]).input_ids + [tokenizer.eos_token_id]
    return {"input_ids": prompt + response, "n_prompt": len(prompt)}


def collator(examples):
    batch = tokenizer.pad({"input_ids": [e["input_ids"] for e in examples]}, return_tensors="pt")
    labels = batch["input_ids"].clone()
    for i, e in enumerate(examples):
        start = labels.size(1) - len(e["input_ids"])
        labels[i, : start + e["n_prompt"]] = -100
    batch["labels"] = labels
    return batch


dataset = Dataset.from_list(questions(128)).map(preprocess, remove_columns=["prompt", "answer"])
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=128,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=7,
        learning_rate=3e-3,
        warmup_steps=1,
        logging_steps=1,
        remove_unused_columns=False,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    ),
    train_dataset=dataset,
    data_collator=collator,
    processing_class=tokenizer,
)
trainer.train()
