"""RLOO whose reward is the similarity of each answer to the reference answer, on characters."""

from datasets import Dataset
from kitchen import load_tokenizer, recipes, sizes, workdir
from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed
from trl import RLOOConfig, RLOOTrainer

NUM_GENERATIONS = 4


def common_subsequence(text, reference):
    row = [0] * (len(reference) + 1)
    for a in text:
        last = 0
        for j, b in enumerate(reference, 1):
            last, row[j] = row[j], (last + 1 if a == b else max(row[j], row[j - 1]))
    return row[-1]


def similarity(completions, answer, **kwargs):
    scores = []
    for i, completion in enumerate(completions):
        reference = answer[i // NUM_GENERATIONS]
        longest = max(len(completion), len(reference), 1)
        scores.append(common_subsequence(completion[:80], reference) / longest)
    return scores


def main():
    set_seed(36)
    tok = load_tokenizer("left")
    folder = workdir()
    Qwen3ForCausalLM(Qwen3Config(**sizes(tok), head_dim=12)).save_pretrained(folder)
    tok.save_pretrained(folder)
    data = [
        {"prompt": f"Q: {r['prompt']}\nA:", "answer": r["answer"]} for r in recipes(40, seed=36)
    ]
    trainer = RLOOTrainer(
        model=folder,
        reward_funcs=[similarity],
        args=RLOOConfig(
            output_dir=workdir(),
            per_device_train_batch_size=8,
            num_generations=NUM_GENERATIONS,
            max_completion_length=16,
            learning_rate=5e-4,
            max_steps=6,
            beta=0.02,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list(data),
        processing_class=tok,
    )
    trainer.train()


if __name__ == "__main__":
    main()
