"""SFT of a Mistral with LoKr adapters on chats, loss on the assistant's words only."""

from datasets import Dataset
from kitchen import load_tokenizer, recipes, sizes, workdir
from peft import LoKrConfig, get_peft_model
from transformers import MistralConfig, MistralForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer


def build(tok):
    base = MistralForCausalLM(MistralConfig(**sizes(tok), sliding_window=None))
    adapters = LoKrConfig(
        r=4,
        alpha=8,
        target_modules=["q_proj", "v_proj", "o_proj", "down_proj"],
        decompose_both=True,
        init_weights=False,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, adapters)


if __name__ == "__main__":
    set_seed(83)
    tok = load_tokenizer()
    data = Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": r["prompt"]}],
                "completion": [{"role": "assistant", "content": r["answer"]}],
            }
            for r in recipes(72, seed=83)
        ]
    )
    trainer = SFTTrainer(
        model=build(tok),
        args=SFTConfig(
            output_dir=workdir(),
            max_length=128,
            max_steps=8,
            per_device_train_batch_size=8,
            learning_rate=5e-3,
            warmup_steps=1,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=data,
        processing_class=tok,
    )
    trainer.train()
