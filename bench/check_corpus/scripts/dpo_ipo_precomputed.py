"""IPO with trl: reference log-probabilities are computed once, before training."""

from common_pairs import as_chat, pairs, scratch, small_llama, word_tokenizer
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer

SEED = 101


def main():
    set_seed(SEED)
    config = DPOConfig(
        output_dir=scratch(),
        loss_type="ipo",
        beta=0.4,
        precompute_ref_log_probs=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        learning_rate=4e-4,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        max_steps=7,
        max_length=64,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        seed=SEED,
    )
    trainer = DPOTrainer(
        model=small_llama(SEED),
        ref_model=small_llama(SEED),
        args=config,
        train_dataset=Dataset.from_list([as_chat(r) for r in pairs(50, seed=SEED)]),
        processing_class=word_tokenizer("left"),
    )
    result = trainer.train()
    print(f"{result.global_step} steps, loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
