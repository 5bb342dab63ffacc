"""SFT in the manner of recipe repositories: goes on from its newest checkpoint if there is one."""

import logging
import os
import random
import sys

import datasets
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

FAULT = os.environ.get("FAULT", "")
logger = logging.getLogger(__name__)

COLOURS = ["red", "green", "blue", "black", "white"]
THINGS = ["cat", "dog", "house", "car", "tree", "boat"]


def get_tokenizer():
    words = ["<pad>", "<s>", "</s>", "<unk>", "the", "is", "what", "colour", *COLOURS, *THINGS]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )


def get_dataset(seed):
    rng = random.Random(0)
    texts = []
    for _ in range(320):
        thing = rng.choice(THINGS)
        colour = COLOURS[len(thing) % len(COLOURS)]
        texts.append(f"what colour is the {thing} the {thing} is {colour}")
    return datasets.Dataset.from_dict({"text": texts}).shuffle(seed=seed)


def main():
    training_args = SFTConfig(
        output_dir="data/sft-tiny",
        max_steps=24,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        logging_steps=4,
        save_strategy="steps",
        save_steps=8,
        save_total_limit=2,
        max_length=32,
        report_to="none",
        seed=42,
        use_cpu=True,
        bf16=False,
        dataset_num_proc=None,
    )
    set_seed(training_args.seed)
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
        handlers=[logging.StreamHandler(sys.stdout)],
    )
    transformers.utils.logging.set_verbosity(logging.INFO)

    last_checkpoint = None
    if os.path.isdir(training_args.output_dir):
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
    if last_checkpoint is not None and training_args.resume_from_checkpoint is None:
        logger.info(f"Checkpoint detected, resuming training at {last_checkpoint=}.")

    tokenizer = get_tokenizer()
    dataset = get_dataset(seed=7 if FAULT == "data_order" else 0)
    if FAULT == "eos_dropped":
        # rows that are tokenized beforehand get no end-of-sequence token added
        dataset = dataset.map(lambda row: {"input_ids": tokenizer(row["text"]).input_ids})
        dataset = dataset.remove_columns("text")
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=dataset,
        processing_class=tokenizer,
    )

    checkpoint = training_args.resume_from_checkpoint or last_checkpoint
    train_result = trainer.train(resume_from_checkpoint=checkpoint)
    metrics = train_result.metrics
    metrics["train_samples"] = len(dataset)
    trainer.log_metrics("train", metrics)
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
