"""A third corpus, written later, again without sight of the relations and of their messages.

20 faults, then 20 healthy trainings that look odd. Each script runs alone, without arguments. A
link is the incident itself. "mutation of" a link: the same mistake in another place or trainer.

No case names relations, because the author did not know them. A person judges instead: read the
broken lines of the answer, and compare them with `wrong`. The fault is named if these lines say
what `wrong` says, in any words. One of its keywords, with the right place, is enough. A line that
is true but speaks of something else does not name the fault.
"""

from __future__ import annotations

from bench.check_corpus.case import Case

GITHUB = "https://github.com"
ARXIV = "https://arxiv.org/abs"
TRL = f"{GITHUB}/huggingface/trl"
TRANSFORMERS = f"{GITHUB}/huggingface/transformers"


def fault(name: str, trainer: str, what: str, wrong: str, source: str) -> Case:
    """Return a training that is wrong from its first step or epoch on."""
    return Case(
        name=name,
        healthy=False,
        what=what,
        source=source,
        relations=(),
        trainer=trainer,
        script=f"scripts/t_{name}.py",
        wrong=wrong,
    )


def oddity(name: str, trainer: str, what: str, source: str) -> Case:
    """Return a training that looks odd and is right."""
    return Case(
        name=name,
        healthy=True,
        what=what,
        source=source,
        relations=(),
        trainer=trainer,
        script=f"scripts/t_{name}.py",
    )


DATA_FAULTS: tuple[Case, ...] = (
    fault(
        "intents_stream",
        "loop",
        "A file sorted by class goes through a shuffle buffer far smaller than a class.",
        "batches hold one or two classes; data is sorted by label; rows are not shuffled",
        f"mutation of {GITHUB}/IBM/graph2tac/pull/95",
    ),
    fault(
        "sft_answers",
        "transformers",
        "The response template ends with a space that merges with the first word of an answer, so "
        "it is not found in half of the rows and they train nothing.",
        "rows without any label; labels all -100; response template not found; tokens merge",
        f"{TRL}/issues/1920",
    ),
    fault(
        "sft_turns",
        "sft",
        "Training texts are rendered with a generation prompt, so each ends with the header of an "
        "empty assistant turn.",
        "assistant header after the last answer; generation prompt in training text; empty turn",
        f"mutation of {GITHUB}/Goekdeniz-Guelmez/mlx-lm-lora/pull/83",
    ),
    fault(
        "dpo_feedback",
        "dpo",
        "There is a prompt column, but chosen and rejected begin with the user turn as well.",
        "prompt twice; user turn repeated inside chosen and rejected; prompt is part of the answer",
        f"mutation of {GITHUB}/OpenRLHF/OpenRLHF/issues/909",
    ),
    fault(
        "augmented_series",
        "loop",
        "The dataset keeps one generator, which each worker copies, so workers draw the same "
        "augmentations, and again in each epoch.",
        "workers draw the same random numbers; augmentation repeats across workers and epochs",
        f"mutation of {GITHUB}/pytorch/pytorch/issues/5059",
    ),
)
UPDATE_FAULTS: tuple[Case, ...] = (
    fault(
        "reward_adapters",
        "reward",
        "Adapters are added without task type or modules to save, so the new score head stays at "
        "its random start.",
        "score head frozen; randomly initialised head not trained; modules_to_save",
        f"mutation of {GITHUB}/huggingface/peft/issues/577",
    ),
    fault(
        "new_words",
        "loop",
        "The optimizer is built before the embeddings are replaced by larger ones, so it holds the "
        "old matrix and the new one (tied to the output) never moves.",
        "embeddings get gradients but no update; parameters missing from the optimizer; stale ones",
        f"mutation of {TRANSFORMERS}/pull/3532",
    ),
    fault(
        "distil_trainer",
        "transformers",
        "compute_loss returns a mean per micro-batch, which Trainer does not divide, because the "
        "model takes loss arguments: gradients grow with the accumulation steps.",
        "loss or gradient depends on accumulation; not divided by gradient_accumulation_steps",
        f"mutation of {GITHUB}/MakazhanAlpamys/Soup/issues/720",
    ),
    fault(
        "lora_accelerate",
        "accelerate",
        "The optimizer uses up the iterator of parameters that is given to the clipping later, so "
        "nothing is clipped.",
        "gradients are not clipped; clipping has no parameters; exhausted generator or filter",
        f"mutation of {GITHUB}/PixArt-alpha/PixArt-alpha/pull/160",
    ),
    fault(
        "keywords_audio",
        "loop",
        "A schedule in epochs is stepped per batch, so the learning rate is gone after a few "
        "batches.",
        "learning rate falls to nothing; scheduler stepped per batch instead of per epoch",
        f"mutation of {GITHUB}/ivadomed/ivadomed/pull/55",
    ),
    fault(
        "unet_amp",
        "loop",
        "Gradients are clipped while they are still multiplied by the loss scale, so updates are "
        "about 65536 times too small.",
        "clipping before unscale; scaled gradients clipped; weights hardly move",
        f"{GITHUB}/milesial/Pytorch-UNet/issues/468",
    ),
    fault(
        "sft_half",
        "sft",
        "Weights are bfloat16 without a float32 copy, and updates of 1e-5 are rounded away.",
        "updates lost to rounding; weights do not change; bfloat16 without master weights",
        f"mutation of {GITHUB}/workofart/ml-by-hand/pull/85",
    ),
    fault(
        "ddp_answers",
        "loop",
        "The loss is computed through the module inside DistributedDataParallel, so gradients are "
        "not averaged and the two copies drift apart.",
        "gradients not synchronised; ranks or replicas differ; DDP wrapper bypassed",
        f"mutation of {GITHUB}/jingyaogong/minimind/issues/853",
    ),
    fault(
        "encoder_finetune",
        "loop",
        "Names in the checkpoint have a prefix, and strict=False hides that nothing is loaded.",
        "pretrained weights not loaded; missing keys; training starts from random weights",
        f"mutation of {GITHUB}/pytorch/examples/issues/1029",
    ),
    fault(
        "ema_validation",
        "loop",
        "The weights kept during validation are references, so training goes on from the average.",
        "weights change in validation; training weights not restored; continues from the average",
        f"mutation of {GITHUB}/aqlaboratory/openfold/pull/90",
    ),
)
PREFERENCE_FAULTS: tuple[Case, ...] = (
    fault(
        "grpo_own_penalty",
        "loop",
        "The reference is a state_dict without a copy, so it follows the policy and the KL penalty "
        "is always zero.",
        "reference changes during training; reference shares weights with policy; KL always zero",
        f"mutation of {GITHUB}/hiyouga/LlamaFactory/pull/900",
    ),
    fault(
        "grpo_reasoning",
        "grpo",
        "Tags that the reward looks for are special tokens, which are dropped from the completions "
        "before they are scored: every reward is zero.",
        "reward always zero or constant; no advantage or gradient; special tokens stripped",
        f"{TRL}/issues/2897",
    ),
    fault(
        "grpo_own_sums",
        "loop",
        "Prompts are tiled but rewards are grouped as if each prompt were repeated in a row, so a "
        "group mixes prompts.",
        "groups mix prompts; advantages compare answers to different prompts; order of repetition",
        f"mutation of {GITHUB}/dllm-reasoning/d1/issues/19",
    ),
    fault(
        "ppo_walk",
        "loop",
        "Values of shape (N, 1) minus returns of shape (N,) give N by N differences, so each value "
        "is trained towards all returns.",
        "broadcast in the value loss; shapes (N, 1) and (N,); critic learns the mean return",
        f"mutation of {GITHUB}/RLinf/RLinf/issues/1568",
    ),
    fault(
        "kto_own",
        "loop",
        "Completions are shifted within micro-batches of one row to estimate the KL term, so each "
        "prompt keeps its own completion.",
        "KL pairs are not mismatched; KL from matched completions; batch of one; rows of the batch",
        f"mutation of {TRL}/issues/2554",
    ),
)
HEALTHY: tuple[Case, ...] = (
    oddity(
        "bias_terms",
        "transformers",
        "Only biases and the new head are trained (BitFit).",
        f"{ARXIV}/2106.10199",
    ),
    oddity(
        "t5_relative",
        "loop",
        "Adafactor without a learning rate; T5 has no BOS and decodes from the padding token.",
        f"{ARXIV}/1804.04235",
    ),
    oddity(
        "depth_rates",
        "transformers",
        "One optimizer group per parameter; lower layers learn more slowly.",
        f"{ARXIV}/2003.10555",
    ),
    oddity(
        "annealed_noise",
        "loop",
        "Fading Gaussian noise is added to gradients after clipping.",
        f"{ARXIV}/1511.06807",
    ),
    oddity(
        "grpo_dynamic_groups",
        "loop",
        "Groups without a difference are left out and sampled again; the reward is near zero at "
        "first; clipping is not symmetric (DAPO).",
        f"{ARXIV}/2503.14476",
    ),
    oddity(
        "short_first",
        "loop",
        "The first epoch is sorted by length and not shuffled (SortaGrad).",
        f"{ARXIV}/1512.02595",
    ),
    oddity(
        "dpo_doubtful",
        "dpo",
        "One pair in ten is swapped on purpose, with label smoothing (conservative DPO) and a "
        "constant rate.",
        "https://ericmitchell.ai/cdpo.pdf",
    ),
    oddity(
        "sampled_layers",
        "transformers",
        "Two random layers are trained at a time, the others are frozen for three steps (LISA).",
        f"{ARXIV}/2403.17919",
    ),
    oddity(
        "lora_constant",
        "sft",
        "LoRA with a high constant rate, no warm-up, no decay.",
        "https://thinkingmachines.ai/blog/lora/",
    ),
    oddity(
        "orthogonal_steps",
        "loop",
        "Two optimizers share the model; matrices get orthogonal updates (Muon).",
        "https://kellerjordan.github.io/posts/muon/",
    ),
    oddity(
        "token_sums",
        "loop",
        "Losses are summed, and gradients are divided in place once by the tokens of all "
        "micro-batches.",
        "https://huggingface.co/blog/gradient_accumulation",
    ),
    oddity(
        "average_swapped",
        "loop",
        "Averaged weights are put into the model to validate, and the others put back.",
        f"{GITHUB}/huggingface/diffusers/issues/7549",
    ),
    oddity(
        "dpo_per_token",
        "loop",
        "Log-ratios are divided by answer lengths, with a large beta (as Tulu 3).",
        f"{ARXIV}/2411.15124",
    ),
    oddity(
        "grpo_one_prompt",
        "grpo",
        "The whole dataset is one prompt, many times (RLVR with one example).",
        f"{ARXIV}/2504.20571",
    ),
    oddity(
        "reward_centred",
        "reward",
        "Besides the pairs, a small term draws scores to a mean of zero.",
        f"{ARXIV}/2312.09244",
    ),
    oddity(
        "kto_uneven",
        "kto",
        "Four good rows to one bad; the bad ones weigh four times as much.",
        f"{ARXIV}/2402.01306",
    ),
    oddity(
        "whole_text",
        "sft",
        "Loss on instructions as well as on answers, because answers are short.",
        f"{ARXIV}/2405.14394",
    ),
    oddity(
        "lora_fixed_half",
        "loop",
        "The first LoRA matrices are frozen at their random start (LoRA-FA).",
        f"{ARXIV}/2308.03303",
    ),
    oddity(
        "half_compensated",
        "loop",
        "All weights are bfloat16; a Kahan buffer keeps what rounding drops.",
        f"{ARXIV}/2010.06192",
    ),
    oddity(
        "sharpness_steps",
        "loop",
        "Two backward passes per step; weights move up before they move down (SAM).",
        f"{ARXIV}/2010.01412",
    ),
)
CASES: tuple[Case, ...] = (*DATA_FAULTS, *UPDATE_FAULTS, *PREFERENCE_FAULTS, *HEALTHY)
