"""Multi-turn SFT with trl, loss on assistant turns only."""

import tempfile

import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

from common_data import build_tokenizer, chats

# The original template has no generation blocks, so we add them.
TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'assistant' %}
        {{- '<|assistant|>\n' }}
        {%- generation %}{{- message['content'] }}{%- endgeneration %}
        {{- eos_token + '\n' }}
    {%- else %}
        {{- '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\n' }}
{%- endif %}"""

torch.manual_seed(0)
tokenizer = build_tokenizer()
tokenizer.chat_template = TEMPLATE

model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
)

config = SFTConfig(
    output_dir=tempfile.mkdtemp(),
    assistant_only_loss=True,
    max_steps=6,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    learning_rate=2e-3,
    max_length=384,
    logging_steps=1,
    bf16=False,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
trainer = SFTTrainer(
    model=model,
    args=config,
    train_dataset=Dataset.from_list([{"messages": m} for m in chats(48)]),
    processing_class=tokenizer,
)
trainer.train()
