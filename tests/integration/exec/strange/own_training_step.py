"""A Trainer subclass whose training_step does forward, loss and backward without compute_loss."""

import os

import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

FAULT = os.environ.get("FAULT", "")


class TokenWeightedTrainer(Trainer):
    """Weights the last tokens of each row twice, as reward-weighted fine-tunings do."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels")
        logits = model(**inputs).logits
        losses = F.cross_entropy(
            logits[:, :-1].transpose(1, 2),
            labels[:, 1:],
            reduction="none",
            label_smoothing=0.1 if FAULT == "smoothing_on" else 0.0,
        )
        weights = torch.ones_like(losses)
        weights[:, -4:] = 2.0
        loss = (losses * weights).sum() / weights.sum()
        if FAULT != "loss_not_divided":
            loss = loss / self.args.gradient_accumulation_steps
        self.accelerator.backward(loss)
        return loss.detach()


set_seed(11)
ids = (torch.arange(400).unsqueeze(1) * 5 + torch.arange(16) * 3) % 47 + 1
data = [{"input_ids": row, "labels": row} for row in ids]
config = LlamaConfig(
    vocab_size=48,
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
trainer = TokenWeightedTrainer(
    model=LlamaForCausalLM(config),
    args=TrainingArguments(
        output_dir="weighted",
        max_steps=24,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=1e-3,
        logging_steps=4,
        save_steps=12,
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=data,
)
trainer.train()
trainer.save_model("weighted/final")
