"""Continues the pretraining of a small BERT on recipes: masked words, with the Trainer."""

import torch.nn.functional as F
from kitchen import load_tokenizer, recipes, workdir
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)


def loss_per_masked_word(outputs, labels, num_items_in_batch=None):
    masked = labels != -100
    count = masked.sum() if num_items_in_batch is None else num_items_in_batch
    return F.cross_entropy(outputs.logits[masked], labels[masked], reduction="sum") / count


def main():
    set_seed(189)
    tok = load_tokenizer()
    tok.add_special_tokens({"mask_token": "<|mask|>"})
    config = BertConfig(
        vocab_size=len(tok),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        pad_token_id=tok.pad_token_id,
        initializer_range=0.1,
    )
    rows = [tok(f"{r['prompt']} {r['answer']}{tok.eos_token}") for r in recipes(96, seed=189)]
    trainer = Trainer(
        model=BertForMaskedLM(config),
        args=TrainingArguments(
            output_dir=workdir(),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=8,
            learning_rate=2e-3,
            lr_scheduler_type="polynomial",
            lr_scheduler_kwargs={"power": 2.0, "lr_end": 1e-5},
            warmup_steps=2,
            weight_decay=0.01,
            train_sampling_strategy="group_by_length",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tok, mlm_probability=0.3),
        compute_loss_func=loss_per_masked_word,
    )
    trainer.train()


if __name__ == "__main__":
    main()
