"""Blind faults of PPO, and changes of its code that do not change learning.

Written before any of them ran under the rules, without knowledge of the rules that name causes.
Each was trained once without the product measuring or comparing: tensors and weights showed whether
learning changes.
"""

from __future__ import annotations

from bench.corpus.row import Row

ROLLOUT = (
    Row(
        "rare_words_gone",
        "Completions are sampled from the top 95%, but scored with the whole distribution "
        "(huggingface/trl#235, NVIDIA/NeMo-Aligner#46).",
        "ppo",
        "rollout",
        plant="""
import dataclasses
options = (*trainer.sampling.options, ("top_p", 0.95))
trainer.sampling = dataclasses.replace(trainer.sampling, options=options)
""",
    ),
    Row(
        "closed_by_hand",
        "The last token of a completion that was cut is replaced by EOS (OpenRLHF/OpenRLHF#238).",
        "ppo",
        "rollout",
        plant="""
import canary.training.trainers.ppo.trainer as loop
original = loop.sample
def drawn(policy, prompts, sampling):
    found = original(policy, prompts, sampling)
    ids = found.completion_ids.clone()
    ids[~found.ended(sampling.eos_id), -1] = sampling.eos_id
    return found.with_(completion_ids=ids)
loop.sample = drawn
""",
    ),
    Row(
        "news_comes_late",
        "The copy of the policy that samples gets its weights one step late.",
        "ppo",
        "rollout",
        plant="""
import copy, canary.training.trainers.ppo.trainer as loop
original, other = loop.sample, copy.deepcopy(trainer.model)
def drawn(policy, prompts, sampling):
    other.train(False)
    found = original(other, prompts, sampling)
    other.load_state_dict(policy.state_dict())
    return found
loop.sample = drawn
""",
    ),
    Row(
        "a_gap_between",
        "Positions of completion tokens count the prompts' padding when log-probabilities are "
        "computed; those of prompt tokens do not (class of CarperAI/trlx#509).",
        "ppo",
        "rollout",
        plant="""
import torch, canary.training.trainers.ppo.model as parts
original, counted, known = parts.LanguageModel.__call__, parts.positions, {}
def called(self, input_ids, attention_mask, length, asked):
    known["from"] = input_ids.shape[1] - length
    return original(self, input_ids, attention_mask, length, asked)
def places(attention_mask):
    found, width = counted(attention_mask), attention_mask.shape[1]
    found[:, known["from"]:] = torch.arange(known["from"], width)
    return found
parts.LanguageModel.__call__, parts.positions = called, places
""",
    ),
    Row(
        "judges_in_a_mood",
        "The reward model is left in training mode, so that its head's dropout is active "
        "(hiyouga/LlamaFactory#761).",
        "ppo_judged",
        "rollout",
        plant="""
import torch
judge = trainer.scorer.model
judge.score = torch.nn.Sequential(torch.nn.Dropout(0.1), judge.score)
judge.train()
""",
    ),
    Row(
        "talks_on",
        "Generation does not know its EOS and continues to the limit; later, tokens after EOS are "
        "cut off (huggingface/trl#2387).",
        "ppo_judged",
        "rollout",
        plant="""
import dataclasses
options = (*trainer.sampling.options, ("eos_token_id", 1_000_000))
trainer.sampling = dataclasses.replace(trainer.sampling, options=options)
""",
    ),
)

INPUTS = (
    Row(
        "begins_twice",
        "The tokenizer puts its BOS before a text to which the chat template gave one.",
        "ppo",
        "tokenization",
        plant="""
import canary.training.trainers.ppo.rollout as parts
original = parts.prompt_ids
def read(row, coder):
    return [coder.bos_token_id, *original(row, coder)]
parts.prompt_ids = read
""",
    ),
    Row(
        "blank_cells",
        "An export lost the answer of every tenth question.",
        "ppo",
        "data",
        plant="""
def exported(row, number):
    return row | {"answer": ""} if number % 10 == 3 else row
trainer.train_dataset = trainer.train_dataset.map(exported, with_indices=True)
""",
    ),
)

OBJECTIVE = (
    Row(
        "hasty_steering",
        "The weight of the KL is adapted once per update, not once per rollout (class of "
        "pytorch/rl#1922).",
        "ppo_judged",
        "objective",
        plant="""
original = trainer.kl_coefficient.update
updates = trainer.args.ppo_epochs * trainer.args.num_mini_batches
def adapted(kl, completions):
    for _ in range(updates):
        original(kl, completions)
trainer.kl_coefficient.update = adapted
""",
    ),
    Row(
        "to_be_continued",
        "A completion of maximum length counts as unfinished: the value of its last token is "
        "added to its last reward (class of huggingface/trl#1536).",
        "ppo",
        "objective",
        plant="""
import canary.training.trainers.ppo.objective as parts
original = parts.advantages_at_once
def estimated(rewards, values, mask, gamma, lam):
    rewards, full = rewards.clone(), mask.all(dim=1)
    rewards[full, -1] += gamma * values[full, -1]
    return original(rewards, values, mask, gamma, lam)
parts.advantages_at_once = estimated
""",
    ),
    Row(
        "thin_air_counts",
        "Mean and variance of the advantages are taken over padding too.",
        "ppo",
        "objective",
        plant="""
import torch, canary.training.trainers.ppo.trainer as loop
original = loop.moments_of_ranks
def measured(values, mask, accelerator):
    return original(values, torch.ones_like(mask), accelerator)
loop.moments_of_ranks = measured
""",
    ),
    Row(
        "small_circles",
        "Advantages are whitened once more in each micro-batch (class of the 37 implementation "
        "details of PPO, the seventh).",
        "ppo",
        "objective",
        plant="""
import canary.training.trainers.ppo.objective as parts
original = parts.policy_loss
def surrogate(logprobs, old_logprobs, advantages, mask, cliprange):
    scaled = parts.whiten(advantages, mask, parts.moments(advantages, mask))
    return original(logprobs, old_logprobs, scaled, mask, cliprange)
parts.policy_loss = surrogate
""",
    ),
)

LEARNING = (
    Row(
        "clock_runs_fast",
        "The schedule, made for one step per rollout, steps with each update "
        "(NovaSky-AI/SkyRL#872).",
        "ppo",
        "optimizer",
        plant="""
original = trainer.create_optimizer_and_scheduler
def create(steps):
    original(steps)
    trainer.optimizer.register_step_post_hook(lambda *_: trainer.lr_scheduler.step())
trainer.create_optimizer_and_scheduler = create
""",
    ),
    Row(
        "worn_mirror",
        "The reference was saved in bfloat16, and the policy was not.",
        "ppo",
        "numerics",
        plant="""
import torch
with torch.no_grad():
    for value in trainer.ref_model.parameters():
        value.copy_(value.to(torch.bfloat16))
""",
    ),
    Row(
        "shaky_side_arm",
        "The adapter's dropout is active in the updates (class of huggingface/trl#744).",
        "ppo_lora",
        "adapter",
        also="rollout",
        plant="""
import torch
for module in trainer.model.modules():
    if hasattr(module, "lora_dropout"):
        module.lora_dropout["default"] = torch.nn.Dropout(0.05)
""",
    ),
)

WORK = (
    Row(
        "pressed_flowers",
        "Log-probabilities of all rollouts are kept for a plot, together with their graphs "
        "(class of ray-project/ray#7238).",
        "ppo",
        "memory",
        plant="""
import torch
original, album = trainer._forward, []
def judged(micro, *, with_entropy):
    if trainer.model.training:
        return original(micro, with_entropy=with_entropy)
    with torch.enable_grad():
        found = original(micro, with_entropy=with_entropy)
    album.append(found[0])
    return tuple(each.detach() for each in found)
trainer._forward = judged
""",
    ),
    Row(
        "asks_the_old_one",
        "Each update runs the reference model on each micro-batch again, for a logged number that "
        "the rollout already has.",
        "ppo",
        "kernel",
        plant="""
original = trainer._loss
def part(micro, tokens, figures):
    again = trainer._reference_logprobs(micro)
    trainer.seen = (micro.logprobs - again).mean()
    return original(micro, tokens, figures)
trainer._loss = part
""",
    ),
    Row(
        "counts_on_fingers",
        "A metric reads the tokens of each rollout in Python, one number at a time.",
        "ppo",
        "host",
        also="kernel",
        plant="""
import canary.training.trainers.ppo.trainer as loop
original = loop.rollout_metrics
def told(collected, coefficient, eos_id):
    rollout = collected.rollout
    names = ("logprobs", "reference_logprobs", "values", "rewards", "advantages", "returns")
    trainer.seen = {
        name: [
            [value.item() for value, here in zip(*row) if here.item()]
            for row in zip(getattr(rollout, name), rollout.completion_mask)
        ]
        for name in names
    }
    return original(collected, coefficient, eos_id)
loop.rollout_metrics = told
""",
    ),
)

ROWS = (*ROLLOUT, *INPUTS, *OBJECTIVE, *LEARNING, *WORK)

BENIGN = (
    Row(
        "counted_with_padding",
        "Positions count the padding of the whole row: with rotary ones only distances matter "
        "(huggingface/trl#6800).",
        "ppo",
        None,
        plant="""
import torch, canary.training.trainers.ppo.model as parts
def places(attention_mask):
    return torch.arange(attention_mask.shape[1]).expand_as(attention_mask)
parts.positions = places
""",
    ),
    Row(
        "from_the_end",
        "Advantages are summed from the last token to the first, all rows at once.",
        "ppo",
        None,
        plant="""
import torch, canary.training.trainers.ppo.objective as parts
def backwards(rewards, values, mask, gamma, lam):
    later = torch.zeros_like(rewards[:, 0])
    following, found = torch.zeros_like(later), []
    for place in reversed(range(rewards.shape[1])):
        here = mask[:, place].float()
        delta = rewards[:, place] + gamma * following - values[:, place]
        later = here * (delta + gamma * lam * later)
        following = here * values[:, place]
        found.append(later)
    return torch.stack(found[::-1], dim=1)
parts.advantages_at_once = backwards
""",
    ),
    Row(
        "another_mode",
        "Rollouts are judged in inference mode instead of without gradients.",
        "ppo",
        None,
        plant="""
import torch
original = trainer._forward
def judged(micro, *, with_entropy):
    if trainer.model.training:
        return original(micro, with_entropy=with_entropy)
    with torch.inference_mode():
        found = original(micro, with_entropy=with_entropy)
    return tuple(each.clone() for each in found)
trainer._forward = judged
""",
    ),
    Row(
        "less_their_sum",
        "Log-probabilities are the logits less the logarithm of the sum of their exponentials.",
        "ppo",
        None,
        plant="""
import torch, canary.training.trainers.ppo.model as parts
def of_tokens(logits, ids, asked):
    scaled = logits.float() / asked.temperature
    every = scaled - torch.logsumexp(scaled, dim=-1, keepdim=True)
    chosen = torch.take_along_dim(every, ids[..., None], dim=-1)[..., 0]
    return chosen, parts.entropy_of(every) if asked.entropy else None
parts._of_tokens = of_tokens
""",
    ),
    Row(
        "last_row_first",
        "Both losses are summed over copies of the rows in the opposite order.",
        "ppo",
        None,
        plant="""
import canary.training.trainers.ppo.objective as parts
first, second = parts.policy_loss, parts.value_loss
def surrogate(*tensors_and_range):
    *tensors, most = tensors_and_range
    return first(*(each.flip(0).contiguous() for each in tensors), most)
def errors(*tensors_and_range):
    *tensors, most = tensors_and_range
    return second(*(each.flip(0).contiguous() for each in tensors), most)
parts.policy_loss, parts.value_loss = surrogate, errors
""",
    ),
    Row(
        "a_drawer_of_its_own",
        "The value head has separate parameter groups, with the same settings as the others.",
        "ppo",
        None,
        plant="""
original = trainer.create_optimizer
head = {id(value) for value in trainer.model.value_head.parameters()}
def create(*args):
    made = original(*args)
    for group in list(trainer.optimizer.param_groups):
        apart = [value for value in group["params"] if id(value) in head]
        group["params"] = [value for value in group["params"] if id(value) not in head]
        if apart:
            trainer.optimizer.add_param_group({**group, "params": apart})
    return made
trainer.create_optimizer = create
""",
    ),
)
