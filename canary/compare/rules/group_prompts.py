"""One prompt per group."""

from __future__ import annotations

from collections import Counter

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import argument, micro_batches
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """An advantage compares completions of one prompt: each prompt comes a whole number of times
    per group. The rows may be shuffled after their advantages are known."""
    if not is_rollout(record):
        return only_for("online RL")
    settings = record.exact.get("evidence", {}).get("settings", {})
    size, steps, whole_size = (
        argument(record, name, settings.get(f"args.{name}"))
        for name in ("num_generations", "steps_per_generation", "generation_batch_size")
    )
    if not isinstance(size, int) or size < 2:
        return only_for("groups of completions")
    micro = micro_batches(record)
    if any("rank" in m for m in micro):
        return not_asked("groups lie on several ranks")
    if not isinstance(steps, int) or steps < 1:
        return not_asked("how many micro-batches share their completions is not known")
    whole = [micro[at : at + steps] for at in range(0, len(micro) - steps + 1, steps)]
    counts = [
        Counter(row for m in one for row in m.get("rows", {}).get("prompt_ids", ()))
        for one in whole
    ]
    if not counts or not all(counts):
        return not_asked("prompts were not recorded")
    if any(sum(one.values()) != whole_size for one in counts):
        return not_asked("rows were left out of a generation")
    own = record.exact.get("facts", {}).get("own_advantages")
    torn = [
        (at, count)
        for at, prompts in enumerate(counts, start=1)
        for count in prompts.values()
        if count % size
    ]
    prompts = sum(map(len, counts))
    words = f"{prompts} prompts come in groups of {size}"
    place, doubt = "", f"the trainer overrides {own}" if own else ""
    if torn:
        at, count = torn[0]
        words = (
            f"{len(torn)} of {prompts} prompts share a group with others: one has {count} "
            f"completions, and a group has {size}"
        )
        place = f"generation {at}"
    return answer(bool(torn), words, size=len(torn), value=len(torn), place=place, doubt=doubt)


RULE = Rule(
    "group_prompts",
    "all completions of a group have one prompt",
    "groups of a known size on one rank",
    "let the sampler repeat each prompt num_generations times in a row",
    "https://github.com/dllm-reasoning/d1/issues/19",
    judge,
)
