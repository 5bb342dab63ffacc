"""GRPO with trl: answers must come as reasoning in tags, then the answer in tags."""

import re

from common_pairs import SPECIAL, VOCABULARY, llama_config, questions, scratch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ ' <user> ' + m['content'] + ' ' }}"
    "{% else %}{{ ' <bot> ' + m['content'] + ' ' + eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ ' <bot>' }}{% endif %}"
)
FORMAT = re.compile(r"<think>.*?</think>")


def build_tokenizer():
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(VOCABULARY)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=SPECIAL[4:] + TAGS,
        padding_side="left",
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def text_of(completion):
    return completion[0]["content"] if isinstance(completion, list) else completion


def format_reward(completions, **_):
    return [1.0 if FORMAT.search(text_of(c)) else 0.0 for c in completions]


def answer_reward(completions, nouns, **_):
    """The share of wanted nouns between the answer tags."""
    out = []
    for completion, wanted in zip(completions, nouns):
        found = re.search(r"<answer>(.*?)(</answer>|$)", text_of(completion))
        words = found.group(1).split() if found else []
        out.append(sum(n in words for n in wanted) / len(wanted))
    return out


def main():
    set_seed(19)
    tokenizer = build_tokenizer()
    folder = scratch()
    model = LlamaForCausalLM(llama_config(vocab_size=len(tokenizer)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rows = [
        {"prompt": [{"role": "user", "content": text}], "nouns": nouns}
        for text, nouns in questions(32, seed=19)
    ]
    args = GRPOConfig(
        output_dir=scratch(),
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=16,
        temperature=1.0,
        beta=0.0,
        learning_rate=1e-3,
        max_steps=14,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    GRPOTrainer(
        model=folder,
        reward_funcs=[format_reward, answer_reward],
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    ).train()


if __name__ == "__main__":
    main()
