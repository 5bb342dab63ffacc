"""TR-DPO: the reference follows the policy, softly, every second step (arXiv 2404.09656)."""

import argparse

from common_pairs import pairs, scratch, small_gpt2, word_tokenizer
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float, default=0.5)
parser.add_argument("--every", type=int, default=2)
parser.add_argument("--steps", type=int, default=8)
options = parser.parse_args()

rows = [
    {
        "prompt": "<user> " + r["prompt"] + " <bot>",
        "chosen": " " + r["chosen"],
        "rejected": " " + r["rejected"],
    }
    for r in pairs(40, seed=6)
]
trainer = DPOTrainer(
    small_gpt2(6, dropout=0.1),
    small_gpt2(6, dropout=0.1),
    args=DPOConfig(
        scratch(),
        sync_ref_model=True,
        ref_model_mixup_alpha=options.alpha,
        ref_model_sync_steps=options.every,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        max_steps=options.steps,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
    ),
    train_dataset=Dataset.from_list(rows),
    processing_class=word_tokenizer(),
)
trainer.train()
print("margins", [h.get("rewards/margins") for h in trainer.state.log_history[:-1]])
