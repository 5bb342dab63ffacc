"""Instruction modelling: the loss covers questions and answers. Short dialogues come first."""

from datasets import Dataset
from kitchen import dialogues, load_tokenizer, sizes, workdir
from torch.utils.data import SequentialSampler
from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer


class CurriculumTrainer(SFTTrainer):
    def _get_train_sampler(self, train_dataset=None):
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)


if __name__ == "__main__":
    set_seed(190)
    tok = load_tokenizer()
    chats = sorted(dialogues(64, seed=190), key=lambda c: sum(len(m["content"]) for m in c))
    trainer = CurriculumTrainer(
        model=Qwen3ForCausalLM(Qwen3Config(**sizes(tok), head_dim=12, tie_word_embeddings=True)),
        args=SFTConfig(
            output_dir=workdir(),
            max_length=256,
            assistant_only_loss=False,
            max_steps=8,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=2e-3,
            lr_scheduler_type="inverse_sqrt",
            warmup_steps=3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list([{"messages": c} for c in chats]),
        processing_class=tok,
    )
    trainer.train()
