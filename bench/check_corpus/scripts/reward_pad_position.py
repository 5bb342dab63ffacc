"""Train a reward model on pairs with trl. The score is read where the answer ends."""

import torch
from common_pairs import as_chat, llama_config, pairs, scratch, word_tokenizer
from datasets import Dataset
from transformers import LlamaForSequenceClassification, set_seed
from transformers.modeling_outputs import SequenceClassifierOutputWithPast
from trl import RewardConfig, RewardTrainer


class LastTokenRewardModel(LlamaForSequenceClassification):
    """Llama with a scalar head on the last hidden state."""

    def forward(self, input_ids=None, attention_mask=None, use_cache=None, **kwargs):
        hidden = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).last_hidden_state
        end_of_text = hidden[:, -1, :]
        return SequenceClassifierOutputWithPast(logits=self.score(end_of_text))


def build_rows(tokenizer, count):
    return Dataset.from_list([as_chat(row) for row in pairs(count, seed=31)])


if __name__ == "__main__":
    set_seed(31)
    tokenizer = word_tokenizer("right")
    torch.manual_seed(31)
    model = LastTokenRewardModel(llama_config(num_labels=1))
    args = RewardConfig(
        output_dir=scratch(),
        max_length=64,
        max_steps=8,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        center_rewards_coefficient=0.01,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = RewardTrainer(
        model=model,
        args=args,
        train_dataset=build_rows(tokenizer, 48),
        processing_class=tokenizer,
    )
    out = trainer.train()
    print("final", out.metrics["train_loss"])
