"""A Trainer on rows that the script itself encodes."""

from datasets import Dataset
from tiny import chats, model, tokenizer
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

tok = tokenizer()


def encode(row):
    text = tok.apply_chat_template(row["chat"], tokenize=False)
    text = text.strip()
    ids = tok(text, add_special_tokens=False)["input_ids"]
    start = ids.index(tok.convert_tokens_to_ids("<assistant>")) + 1
    return {"input_ids": ids, "labels": [-100] * start + ids[start:]}


data = Dataset.from_list([{"chat": chat} for chat in chats(96)]).map(encode, remove_columns="chat")
args = TrainingArguments(
    "out", per_device_train_batch_size=8, learning_rate=1e-3, max_steps=12, logging_steps=1,
    report_to=[], save_strategy="no", use_cpu=True,
)  # fmt: skip
Trainer(
    model(tok), args, train_dataset=data, processing_class=tok,
    data_collator=DataCollatorForSeq2Seq(tok),
).train()  # fmt: skip
