"""DPO with trl on pairs of which some are known to be the wrong way round."""

from common_pairs import pairs, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer


def main():
    set_seed(39)
    tokenizer = word_tokenizer()
    rows = [
        {k: f" {row[k]}" if k != "prompt" else f"<user> {row[k]} <bot>" for k in row}
        for row in pairs(72, seed=39)
    ]
    for row in rows[::10]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    args = DPOConfig(
        output_dir=scratch(),
        beta=0.1,
        label_smoothing=0.1,
        loss_type="sigmoid",
        per_device_train_batch_size=6,
        num_train_epochs=1,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    DPOTrainer(
        model=small_llama(39),
        ref_model=small_llama(39),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
