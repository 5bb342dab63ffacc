"""LoRA SFT with trl and peft on prompt/completion pairs."""

import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

from common_data import build_tokenizer, questions

torch.manual_seed(12)
tok = build_tokenizer()
base = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tok),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        bos_token_id=tok.bos_token_id,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
)

rows = [
    {
        "prompt": [{"role": "user", "content": q["prompt"]}],
        "completion": [{"role": "assistant", "content": q["answer"]}],
    }
    for q in questions(96, seed=13)
]

peft_config = LoraConfig(
    r=8,
    lora_alpha=32,
    lora_dropout=0.0,
    bias="none",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    init_lora_weights=False,  # we bring no adapter weights of our own
    task_type="CAUSAL_LM",
)

args = SFTConfig(
    output_dir=tempfile.mkdtemp(),
    max_steps=8,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=5e-3,
    logging_steps=1,
    bf16=False,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)

trainer = SFTTrainer(
    model=base,
    args=args,
    train_dataset=Dataset.from_list(rows),
    processing_class=tok,
    peft_config=peft_config,
)
trainer.model.print_trainable_parameters()
trainer.train()
