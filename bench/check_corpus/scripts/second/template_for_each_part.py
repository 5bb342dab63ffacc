"""DPO on chats. The template has a default system prompt, as Qwen2.5's."""

from datasets import Dataset
from kitchen import load_tokenizer, preferences, sizes, workdir
from transformers import Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import DPOConfig, DPOTrainer

TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful cook.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def process(row, tokenizer):
    def render(role, text):
        return tokenizer.apply_chat_template([{"role": role, "content": text}], tokenize=False)

    return {
        "prompt": render("user", row["prompt"]),
        "chosen": render("assistant", row["chosen"]),
        "rejected": render("assistant", row["rejected"]),
    }


def main():
    set_seed(27)
    tokenizer = load_tokenizer(template=TEMPLATE)
    config = Qwen2Config(**sizes(tokenizer))
    set_seed(27)
    model = Qwen2ForCausalLM(config)
    set_seed(27)
    reference = Qwen2ForCausalLM(config)
    data = Dataset.from_list([process(r, tokenizer) for r in preferences(64, seed=27)])
    trainer = DPOTrainer(
        model=model,
        ref_model=reference,
        args=DPOConfig(
            output_dir=workdir(),
            beta=0.1,
            max_length=192,
            per_device_train_batch_size=4,
            max_steps=7,
            learning_rate=5e-4,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.train()


if __name__ == "__main__":
    main()
