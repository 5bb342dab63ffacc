"""KTO with a reference model that does not store the large embedding matrix a second time."""

import copy

from datasets import Dataset
from kitchen import load_tokenizer, preferences, sizes, workdir
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import KTOConfig, KTOTrainer


def light_reference(model):
    """A copy of the model that takes half of its memory."""
    words = model.get_input_embeddings()
    reference = copy.deepcopy(model)
    reference.set_input_embeddings(words)
    reference.tie_weights()
    return reference.eval()


def rows(n):
    out = []
    for i, row in enumerate(preferences(n, seed=64)):
        good = i % 2 == 0
        out.append(
            {
                "prompt": [{"role": "user", "content": row["prompt"]}],
                "completion": [
                    {"role": "assistant", "content": row["chosen" if good else "rejected"]}
                ],
                "label": good,
            }
        )
    return Dataset.from_list(out)


if __name__ == "__main__":
    set_seed(64)
    tok = load_tokenizer()
    policy = LlamaForCausalLM(LlamaConfig(**sizes(tok), tie_word_embeddings=True))
    trainer = KTOTrainer(
        model=policy,
        ref_model=light_reference(policy),
        args=KTOConfig(
            output_dir=workdir(),
            beta=0.2,
            max_length=128,
            per_device_train_batch_size=4,
            max_steps=7,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=rows(64),
        processing_class=tok,
    )
    trainer.train()
