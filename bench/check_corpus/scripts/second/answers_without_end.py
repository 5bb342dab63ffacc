"""A small T5 that answers questions about the kitchen, with Seq2SeqTrainer."""

from kitchen import load_tokenizer, recipes, workdir
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

set_seed(52)
tokenizer = load_tokenizer()
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=len(tokenizer),
        d_model=48,
        d_kv=12,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
)


def preprocess(rows, max_source=64, max_target=64):
    out = []
    for row in rows:
        source = tokenizer("answer: " + row["prompt"], max_length=max_source, truncation=True)
        target = tokenizer(text_target=row["answer"], max_length=max_target, truncation=True)
        out.append(
            {
                "input_ids": source["input_ids"],
                "attention_mask": source["attention_mask"],
                "labels": target["input_ids"],
            }
        )
    return out


trainer = Seq2SeqTrainer(
    model=model,
    args=Seq2SeqTrainingArguments(
        output_dir=workdir(),
        per_device_train_batch_size=8,
        max_steps=8,
        learning_rate=5e-3,
        lr_scheduler_type="constant",
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=preprocess(recipes(96, seed=52)),
    data_collator=DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=-100),
)
trainer.train()
