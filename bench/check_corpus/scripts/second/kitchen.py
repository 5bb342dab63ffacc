"""Questions about a kitchen, a byte-level tokenizer with ChatML, and small models. No network."""

import random
import tempfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

FOODS = [
    "rice",
    "beans",
    "carrots",
    "onions",
    "garlic",
    "butter",
    "flour",
    "eggs",
    "milk",
    "sugar",
    "salt",
    "pepper",
    "lentils",
    "tofu",
]
TOOLS = ["pan", "pot", "knife", "whisk", "spoon", "oven", "bowl"]
STEPS = ["chop", "boil", "fry", "stir", "bake", "mix", "rinse", "peel"]
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]

CHATML = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def recipe(rng):
    kind = rng.randrange(3)
    if kind == 0:
        food, tool = rng.choice(FOODS), rng.choice(TOOLS)
        steps = rng.sample(STEPS, rng.randrange(2, 6))
        answer = ", then ".join(f"{s} the {food}" for s in steps)
        return {"prompt": f"How do I cook {food} with a {tool}?", "answer": answer + "."}
    if kind == 1:
        count = rng.randrange(2, 9)
        food = rng.choice(FOODS)
        return {
            "prompt": f"Count {count} portions of {food}.",
            "answer": " ".join(f"{NUMBERS[i]} {food}" for i in range(count)),
        }
    foods = rng.sample(FOODS, rng.randrange(2, 5))
    return {
        "prompt": f"Sort these: {', '.join(foods)}",
        "answer": ", ".join(sorted(foods)),
    }


def recipes(n, seed=0):
    rng = random.Random(seed)
    return [recipe(rng) for _ in range(n)]


def dialogues(n, seed=0, longest=3):
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        messages = []
        for _ in range(rng.randint(1, longest)):
            row = recipe(rng)
            messages += [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["answer"]},
            ]
        out.append(messages)
    return out


def preferences(n, seed=0):
    """Rows with a right answer and one with missing and repeated words, of other length."""
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        row = recipe(rng)
        words = row["answer"].split()
        bad = [w for w in words if rng.random() < 0.6] + rng.choices(FOODS, k=rng.randint(1, 6))
        out.append({"prompt": row["prompt"], "chosen": row["answer"], "rejected": " ".join(bad)})
    return out


def load_tokenizer(padding_side="right", template=CHATML, size=400):
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    text = [f"{r['prompt']}\n{r['answer']}" for r in recipes(300, seed=99)] + [
        "user assistant system"
    ] * 3
    core.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        padding_side=padding_side,
    )
    tokenizer.chat_template = template
    return tokenizer


def sizes(tokenizer, **changes):
    """Arguments that Llama, Qwen2, Qwen3, Mistral and their kin share."""
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.1,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    } | changes


def workdir():
    return tempfile.mkdtemp(prefix="kitchen_")
