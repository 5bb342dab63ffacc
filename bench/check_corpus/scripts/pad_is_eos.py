#!/usr/bin/env python
# Causal LM fine-tuning after the course notebook: tokenize, pad, DataCollatorForLanguageModeling.
import tempfile

from datasets import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

from common_data import build_tokenizer, questions

set_seed(42)

tokenizer = build_tokenizer()
tokenizer.pad_token = tokenizer.eos_token

template = "Below is an instruction.\n{prompt}\nResponse: {answer}"
raw = Dataset.from_list(questions(160, seed=2))
tokenized = raw.map(
    lambda batch: tokenizer(
        [
            template.format(prompt=p, answer=a) + tokenizer.eos_token
            for p, a in zip(batch["prompt"], batch["answer"])
        ],
        truncation=True,
        max_length=128,
    ),
    batched=True,
    remove_columns=raw.column_names,
)

model = GPTNeoXForCausalLM(
    GPTNeoXConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        tempfile.mkdtemp(prefix="neox-"),
        max_steps=8,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        weight_decay=0.01,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
    ),
    train_dataset=tokenized,
    data_collator=DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=False),
    processing_class=tokenizer,
)

if __name__ == "__main__":
    result = trainer.train()
    print(result.metrics)
