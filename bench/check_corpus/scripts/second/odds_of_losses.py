"""ORPO that works on the loss per token, so that the same code serves diffusion models."""

import warnings

import torch
import torch.nn.functional as F
from datasets import Dataset
from kitchen import load_tokenizer, preferences, sizes, workdir
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

warnings.filterwarnings("ignore")


class LossORPOTrainer(ORPOTrainer):
    def odds_ratio_loss(self, policy_chosen_logps, policy_rejected_logps):
        losses_w, losses_l = -policy_chosen_logps.float(), -policy_rejected_logps.float()
        log_odds = (losses_w - losses_l) - (
            torch.log1p(-torch.exp(-losses_w)) - torch.log1p(-torch.exp(-losses_l))
        )
        ratio = F.logsigmoid(log_odds)
        rewards_w, rewards_l = -self.beta * losses_w.detach(), -self.beta * losses_l.detach()
        return self.beta * ratio, rewards_w, rewards_l, ratio.mean(), log_odds.mean()


if __name__ == "__main__":
    set_seed(19)
    tok = load_tokenizer()
    rows = [
        {
            "prompt": [{"role": "user", "content": r["prompt"]}],
            "chosen": [{"role": "assistant", "content": r["chosen"]}],
            "rejected": [{"role": "assistant", "content": r["rejected"]}],
        }
        for r in preferences(64, seed=19)
    ]
    trainer = LossORPOTrainer(
        model=LlamaForCausalLM(LlamaConfig(**sizes(tok))),
        args=ORPOConfig(
            output_dir=workdir(),
            beta=0.5,
            max_length=128,
            per_device_train_batch_size=4,
            max_steps=8,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tok,
    )
    trainer.train()
