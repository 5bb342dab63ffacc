"""Blind corpus, faults of optimizer, adapter, rollout and config.

Written only from the list of categories and the open corpus, before any of them ran.
"""

from __future__ import annotations

from bench.corpus.row import Row

OPTIMIZER = (
    Row(
        "decay_for_all",
        "Weight decay applies to all parameters, even norms, although the config turns it off "
        "(class of oumi-ai/oumi#341).",
        "sft",
        "optimizer",
        plant="""
original = trainer.create_optimizer
def create(*args, **kwargs):
    found = original(*args, **kwargs)
    for group in found.param_groups:
        group["weight_decay"] = 0.1
    return found
trainer.create_optimizer = create
""",
    ),
    Row(
        "nothing_clipped",
        "Gradients are no longer clipped (class of awslabs/graphstorm#1366).",
        "grpo",
        "optimizer",
        plant="trainer.args.max_grad_norm = 0.0",
    ),
    Row(
        "never_cleared",
        "Gradients of earlier steps are never cleared (tenstorrent/tt-blacksmith#711).",
        "kto",
        "optimizer",
        plant="trainer.model.zero_grad = lambda *args, **kwargs: None",
    ),
    Row(
        "level_rate",
        "A merged config keeps the learning rate constant instead of decaying.",
        "reward",
        "optimizer",
        config={"trainer_args": {"lr_scheduler_type": "constant"}},
    ),
    Row(
        "moments_lost",
        "The optimizer's state is dropped every fourth step, as after a resume that loads none.",
        "sft_lora",
        "optimizer",
        plant="""
from transformers import TrainerCallback
class Fresh(TrainerCallback):
    def on_step_end(self, args, state, control, **known):
        if state.global_step % 4 == 0:
            known["optimizer"].state.clear()
trainer.add_callback(Fresh())
""",
    ),
    Row(
        "of_an_old_copy",
        "The optimizer was made before the model was replaced, and updates unused parameters.",
        "own_sft",
        "optimizer",
        plant="""
import copy, torch
old = copy.deepcopy(trainer.model)
trainer.optimizer = torch.optim.AdamW(old.parameters(), lr=trainer.args.learning_rate)
""",
    ),
)

ADAPTER = (
    Row(
        "alpha_alone",
        "The adapter's output is multiplied by alpha, not by alpha over the rank "
        "(Blaizzy/mlx-vlm#841).",
        "sft_lora",
        "adapter",
        plant="""
for module in trainer.model.modules():
    if hasattr(module, "lora_A") and hasattr(module, "scaling"):
        for name in module.scaling:
            module.scaling[name] = float(module.lora_alpha[name])
""",
    ),
    Row(
        "base_thawed",
        "The frozen weights under the adapter are made trainable again (LLaVA-VL/LLaVA-NeXT#508).",
        "dpo_lora",
        "adapter",
        plant="""
for name, value in trainer.model.named_parameters():
    if ".base_layer." in name:
        value.requires_grad_(True)
""",
    ),
    Row(
        "half_the_rank",
        "A merged config brings adapters of another rank.",
        "sft_lora",
        "adapter",
        config={"lora_r": 4},
    ),
)

ROLLOUT = (
    Row(
        "never_stops",
        "Generation waits for the end token of another tokenizer (class of huggingface/trl#7039).",
        "grpo",
        "rollout",
        plant="""
other = trainer.model.config.vocab_size - 1
trainer.generation_config.eos_token_id = [other]
trainer.generation_kwargs["eos_token_id"] = [other]
""",
    ),
    Row(
        "few_to_choose",
        "A default of the model cuts sampling to the most likely tokens (class of "
        "huggingface/trl#5783).",
        "rloo",
        "rollout",
        plant="""
trainer.generation_config.top_k = 4
trainer.generation_kwargs["top_k"] = 4
""",
    ),
    Row(
        "all_alike",
        "Every completion of a prompt is the same, because nothing is sampled "
        "(huggingface/trl#5783).",
        "grpo",
        "rollout",
        plant="""
trainer.generation_config.do_sample = False
trainer.generation_kwargs["do_sample"] = False
""",
    ),
    Row(
        "anothers_reward",
        "Rewards come back from a pool of workers in another order than the completions.",
        "grpo",
        "rollout",
        plant="""
original = trainer.reward_funcs[0]
def reward(**columns):
    found = list(original(**columns))
    return found[1:] + found[:1]
trainer.reward_funcs[0] = reward
""",
    ),
    Row(
        "cut_short",
        "A merged config ends completions after a third of the tokens.",
        "rloo",
        "rollout",
        config={"max_new_tokens": 8},
    ),
)

SETTINGS = (
    Row(
        "another_seed",
        "A merged config brings another seed.",
        "sft",
        "config",
        also="data",
        config={"seed": 43},
    ),
)

ROWS = (*OPTIMIZER, *ADAPTER, *ROLLOUT, *SETTINGS)
