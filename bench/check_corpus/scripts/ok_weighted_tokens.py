"""Trainer with a token-weighted loss: digits count three times, and the sum of weights divides."""

import tempfile

import torch
import torch.nn.functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments, set_seed

from common_data import build_tokenizer, questions

DIGIT_WEIGHT = 3.0


def weigh(tokenizer, ids):
    return [DIGIT_WEIGHT if any(c.isdigit() for c in tokenizer.decode([i])) else 1.0 for i in ids]


def prepare(tokenizer, rows):
    out = []
    for r in rows:
        prompt = tokenizer(f"<|user|>{r['prompt']}</s><|assistant|>").input_ids
        answer = tokenizer(r["answer"]).input_ids + [tokenizer.eos_token_id]
        out.append(
            {
                "input_ids": prompt + answer,
                "labels": [-100] * len(prompt) + answer,
                "weights": [0.0] * len(prompt) + weigh(tokenizer, answer),
            }
        )
    return out


def collate(rows):
    width = max(len(r["input_ids"]) for r in rows)
    fill = {"input_ids": 0, "labels": -100, "weights": 0.0}
    batch = {
        k: torch.tensor([r[k] + [v] * (width - len(r[k])) for r in rows]) for k, v in fill.items()
    }
    batch["attention_mask"] = (batch["input_ids"] != 0).long()
    return batch


class WeightedTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = True  # compute_loss divides by num_items_in_batch

    def _get_num_items_in_batch(self, batch_samples, device):
        return sum(b["weights"][:, 1:].sum() for b in batch_samples).to(device)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weights, labels = inputs.pop("weights"), inputs.pop("labels")
        outputs = model(**inputs)
        nll = F.cross_entropy(
            outputs.logits[:, :-1].transpose(1, 2),
            labels[:, 1:],
            reduction="none",
            ignore_index=-100,
        )
        weights = weights[:, 1:]
        denominator = weights.sum() if num_items_in_batch is None else num_items_in_batch
        loss = (nll * weights).sum() / denominator
        return (loss, outputs) if return_outputs else loss


if __name__ == "__main__":
    set_seed(1)
    tok = build_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tok),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    trainer = WeightedTrainer(
        model=Qwen2ForCausalLM(config),
        args=TrainingArguments(
            tempfile.mkdtemp(),
            max_steps=7,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            learning_rate=3e-3,
            logging_steps=1,
            remove_unused_columns=False,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=prepare(tok, questions(96, seed=90)),
        data_collator=collate,
    )
    trainer.train()
