"""SFT of an adapter on answers that think first, with a token that is new to the model."""

import torch
from datasets import Dataset
from peft import LoraConfig
from tiny import chats, model, tokenizer
from trl import SFTConfig, SFTTrainer

tok = tokenizer()
model = model(tok)
tok.add_tokens(["<calc>"], special_tokens=True)
torch.manual_seed(1)
model.resize_token_embeddings(len(tok), mean_resizing=False)
tok.chat_template = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<user> {{ m.content }} <end> "
    "{% else %}<assistant> {% generation %}"
    "{{ m.content }}"
    " <end> {% endgeneration %}{% endif %}{% endfor %}"
)


def thinks(chat):
    question, answer = chat
    thought = f"<think> so then {question['content']} it is </think> <calc> {answer['content']}"
    return {"messages": [question, {"role": "assistant", "content": thought}]}


args = SFTConfig(
    "out", per_device_train_batch_size=8, learning_rate=1e-3, max_steps=12, logging_steps=1,
    report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
    max_length=64, assistant_only_loss=True,
)  # fmt: skip
lora = LoraConfig(
    r=4,
    target_modules=["q_proj", "v_proj"],
    modules_to_save=["embed_tokens", "lm_head"],
)
data = Dataset.from_list([thinks(chat) for chat in chats(96)])
SFTTrainer(model, args, train_dataset=data, processing_class=tok, peft_config=lora).train()
