"""DPO with trl, options by argparse, results appended to a CSV file."""

import argparse
import copy
import csv
import os
import random

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import DPOConfig, DPOTrainer

FAULT = os.environ.get("FAULT", "")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="dpo")
    return parser.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)
    words = ["<pad>", "<s>", "</s>", "<unk>", "say", "good", "bad", *(f"w{i}" for i in range(24))]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    rng = random.Random(0)
    rows = {"prompt": [], "chosen": [], "rejected": []}
    for _ in range(160):
        w = [f"w{rng.randrange(24)}" for _ in range(rng.randint(2, 4))]
        good, bad = " good " + " ".join(w), " bad " + " ".join(w[::-1])
        if FAULT == "swapped":
            good, bad = bad, good
        rows["prompt"].append("say " + " ".join(w))
        rows["chosen"].append(good)
        rows["rejected"].append(bad)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=copy.deepcopy(model),
        args=DPOConfig(
            output_dir=args.output,
            beta=args.beta,
            learning_rate=args.lr,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            max_length=48,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_dict(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.output)
    last = [e for e in trainer.state.log_history if "rewards/margins" in e][-1]
    with open(os.path.join(args.output, "results.csv"), "a", newline="") as f:
        csv.writer(f).writerow(
            [args.beta, args.lr, args.seed, last["loss"], last["rewards/margins"]]
        )


if __name__ == "__main__":
    main()
