"""GSPO with trl: one ratio per answer, four updates per generation, rewards scaled by batch."""

from datasets import Dataset
from kitchen import load_tokenizer, recipes, sizes, workdir
from transformers import Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer


def overlap(completions, answer, **kwargs):
    out = []
    for text, reference in zip(completions, answer):
        wanted = {reference[i : i + 2] for i in range(len(reference) - 1)}
        have = {text[i : i + 2] for i in range(len(text) - 1)}
        out.append(len(wanted & have) / max(len(wanted), 1))
    return out


def brevity(completion_ids, **kwargs):
    return [-abs(len(ids) - 10) / 10 for ids in completion_ids]


def main():
    set_seed(201)
    tok = load_tokenizer("left")
    data = [
        {"prompt": f"Q: {r['prompt']}\nA:", "answer": r["answer"]} for r in recipes(48, seed=201)
    ]
    trainer = GRPOTrainer(
        model=Qwen2ForCausalLM(Qwen2Config(**sizes(tok))),
        reward_funcs=[overlap, brevity],
        args=GRPOConfig(
            output_dir=workdir(),
            importance_sampling_level="sequence",
            loss_type="grpo",
            scale_rewards="batch",
            beta=0.0,
            epsilon=3e-3,
            epsilon_high=4e-3,
            steps_per_generation=4,
            num_generations=4,
            per_device_train_batch_size=4,
            max_completion_length=16,
            reward_weights=[1.0, 0.1],
            mask_truncated_completions=False,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            max_steps=8,
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
