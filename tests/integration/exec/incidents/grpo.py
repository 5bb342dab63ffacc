"""GRPO of an adapter that was saved before, with two rewards."""

import re

from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from tiny import WORDS, chats, model, tokenizer
from trl import GRPOConfig, GRPOTrainer

tok = tokenizer()
lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian")
get_peft_model(model(tok), lora).save_pretrained("adapter")
policy = PeftModel.from_pretrained(model(tok), "adapter", is_trainable=True)
data = Dataset.from_list([{"prompt": question["content"]} for question, _ in chats(48)])


def format_reward(completions, **_):
    pattern = re.compile(r".*\b(sum|answer|gives|total)\b.*", re.DOTALL)
    return [float(bool(pattern.fullmatch(lines(text)))) for text in completions]


def short_reward(completions, **_):
    return [-0.05 * len(text.split()) for text in completions]


def lines(text):
    """Begin a line at most words, as this model does."""
    return "".join(("\n" if word in WORDS[:6] else " ") + word for word in text.split()) + "\n"


args = GRPOConfig(
    "out", per_device_train_batch_size=8, num_generations=4, max_completion_length=16,
    learning_rate=1e-3, beta=0.04, max_steps=12, logging_steps=1, report_to=[],
    save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
)  # fmt: skip
GRPOTrainer(
    policy, reward_funcs=[format_reward, short_reward], args=args, train_dataset=data,
    processing_class=tok,
).train()  # fmt: skip
