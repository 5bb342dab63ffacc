"""Supervised fine-tuning with three dataclasses of options, read by HfArgumentParser."""

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset

IGNORE_INDEX = -100
PROMPT = "instruction : reverse {} response :"
FAULT = os.environ.get("FAULT", "")


@dataclass
class ModelArguments:
    hidden_size: int = field(default=48)
    num_layers: int = field(default=2)


@dataclass
class DataArguments:
    num_rows: int = field(default=320, metadata={"help": "Rows of the training data."})


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    model_max_length: int = field(default=64, metadata={"help": "Longer rows are cut."})


def _tokenize_fn(strings: Sequence[str], tokenizer):
    ids = [
        tokenizer(
            s, truncation=True, max_length=tokenizer.model_max_length, return_tensors="pt"
        ).input_ids[0]
        for s in strings
    ]
    return ids, [len(i) for i in ids]


class SupervisedDataset(Dataset):
    def __init__(self, n, tokenizer):
        generator = torch.Generator().manual_seed(0)
        sources, targets = [], []
        for _ in range(n):
            letters = [chr(97 + int(c)) for c in torch.randint(26, (4,), generator=generator)]
            sources.append(PROMPT.format(" ".join(letters)) + " ")
            eos = "" if FAULT == "eos_dropped" else " " + tokenizer.eos_token
            targets.append(" ".join(letters[::-1]) + eos)
        examples = [s + t for s, t in zip(sources, targets, strict=True)]
        self.input_ids, _ = _tokenize_fn(examples, tokenizer)
        _, lengths = _tokenize_fn(sources, tokenizer)
        self.labels = copy.deepcopy(self.input_ids)
        for label, length in zip(self.labels, lengths, strict=True):
            label[:length] = IGNORE_INDEX

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, i):
        return {"input_ids": self.input_ids[i], "labels": self.labels[i]}


@dataclass
class DataCollatorForSupervisedDataset:
    tokenizer: transformers.PreTrainedTokenizer

    def __call__(self, instances):
        input_ids, labels = ([i[k] for i in instances] for k in ("input_ids", "labels"))
        input_ids = torch.nn.utils.rnn.pad_sequence(
            input_ids, batch_first=True, padding_value=self.tokenizer.pad_token_id
        )
        labels = torch.nn.utils.rnn.pad_sequence(
            labels, batch_first=True, padding_value=IGNORE_INDEX
        )
        mask = input_ids.ne(self.tokenizer.pad_token_id)
        return {"input_ids": input_ids, "labels": labels, "attention_mask": mask}


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    transformers.set_seed(training_args.seed)

    words = ["<pad>", "<s>", "</s>", "<unk>", "instruction", "response", "reverse", ":"]
    words += [chr(97 + i) for i in range(26)]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=training_args.model_max_length,
    )
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(words),
            hidden_size=model_args.hidden_size,
            intermediate_size=2 * model_args.hidden_size,
            num_hidden_layers=model_args.num_layers,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    trainer = transformers.Trainer(
        model=model,
        processing_class=tokenizer,
        args=training_args,
        train_dataset=SupervisedDataset(data_args.num_rows, tokenizer),
        eval_dataset=None,
        data_collator=DataCollatorForSupervisedDataset(tokenizer),
    )
    trainer.train()
    trainer.save_state()
    trainer.save_model(output_dir=training_args.output_dir)


if __name__ == "__main__":
    train()
