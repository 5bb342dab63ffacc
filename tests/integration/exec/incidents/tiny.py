"""A tokenizer, a model and questions with answers: small, and without a download."""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
WORDS = "what is plus and the sum of please tell add answer so then gives well it total".split()
MARKS = "<pad> <bos> <eos> <user> <assistant> <end> <unk> <think> </think>".split()
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<user> {{ m.content }} <end> "
    "{% else %}<assistant> {{ m.content }} <end> {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def tokenizer():
    vocabulary = {word: number for number, word in enumerate(MARKS + NUMBERS + WORDS)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing("<bos> $A", None, [("<bos>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<bos>", eos_token="<end>",
        unk_token="<unk>", additional_special_tokens=["<user>", "<assistant>"],
        chat_template=TEMPLATE,
    )  # fmt: skip


def model(tok):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tok), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128,
        bos_token_id=1, eos_token_id=tok.eos_token_id, pad_token_id=0,
    ))  # fmt: skip


def chats(count):
    """Yield messages of a question, and of an answer of one to five words."""
    draw = random.Random(1)
    for _ in range(count):
        a, b = draw.randrange(6), draw.randrange(6)
        question = draw.choice(["what is {} plus {}", "please tell the sum of {} and {}"])
        answer = draw.choice(["it is {2}", "{2}", "well {0} plus {1} gives {2}"])
        words = NUMBERS[a], NUMBERS[b], NUMBERS[a + b]
        yield [
            {"role": "user", "content": question.format(*words)},
            {"role": "assistant", "content": answer.format(*words)},
        ]
