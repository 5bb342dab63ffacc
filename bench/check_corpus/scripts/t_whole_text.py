"""SFT with trl on few long instructions with short answers; instructions are trained as well."""

import random
import tempfile

from common_data import WORDS, build_tokenizer
from datasets import Dataset
from t_sft_turns import load_model
from transformers import set_seed
from trl import SFTConfig, SFTTrainer


def tasks(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        words = rng.sample(WORDS, rng.randint(5, 9))
        last = words[-1]
        prompt = f"Read this list: {', '.join(words)}. Which word comes last?\n"
        yield {"prompt": prompt, "completion": last}


def main():
    set_seed(71)
    tokenizer = build_tokenizer()
    args = SFTConfig(
        output_dir=tempfile.mkdtemp(),
        completion_only_loss=False,
        per_device_train_batch_size=8,
        num_train_epochs=1,
        learning_rate=2e-3,
        max_length=256,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    SFTTrainer(
        model=load_model(tokenizer),
        args=args,
        train_dataset=Dataset.from_list(list(tasks(112, 71))),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
