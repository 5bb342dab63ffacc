"""Fine-tunes an encoder with a learning rate that shrinks towards the bottom layers."""

import torch
from t_bias_terms import collate, reviews
from transformers import (
    ElectraConfig,
    ElectraForSequenceClassification,
    Trainer,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)

LAYERS, DECAY, LR, STEPS = 4, 0.8, 3e-3, 24


def depth(name):
    """0 for embeddings, one more per layer, the head on top."""
    if ".embeddings" in name or "embeddings_project" in name:
        return 0
    if ".layer." in name:
        return int(name.split(".layer.")[1].split(".")[0]) + 1
    return LAYERS + 1


def groups(model):
    for name, parameter in model.named_parameters():
        plain = parameter.ndim < 2
        yield {
            "params": [parameter],
            "lr": LR * DECAY ** (LAYERS + 1 - depth(name)),
            "weight_decay": 0.0 if plain else 0.01,
        }


def main():
    torch.manual_seed(15)
    model = ElectraForSequenceClassification(
        ElectraConfig(
            vocab_size=60,
            embedding_size=32,
            hidden_size=48,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=64,
            initializer_range=0.15,
            num_labels=2,
        )
    )
    optimizer = torch.optim.AdamW(list(groups(model)))
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, STEPS)
    args = TrainingArguments(
        output_dir="/tmp/depth_rates",
        per_device_train_batch_size=16,
        max_steps=STEPS,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    Trainer(
        model=model,
        args=args,
        train_dataset=reviews(192, 15),
        data_collator=collate,
        optimizers=(optimizer, scheduler),
    ).train()


if __name__ == "__main__":
    main()
