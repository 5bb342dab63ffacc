"""Rules of data, tokens and rewards: each kept, broken, in doubt, and not asked."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.compare.rules import RULES
from canary.compare.rules.rule import Answer
from canary.record.exact import TORCH_LOOP
from canary.record.types import RunRecord
from tests.unit.comparing import altered, example

STEPS = 4


def judged(name: str, whole: RunRecord) -> Answer:
    return next(rule for rule in RULES if rule.id == name).judge(whole)


def looked(micro: list[dict[str, Any]] | None = None, kind: str = "sft", **exact: Any) -> RunRecord:
    """A run whose look saw these micro-batches, one per step, and these other facts."""
    found = {"batches": [[one] for one in micro or ()]} | exact
    return altered(example(kind), "exact", to=found)


def with_tokens(**special: int) -> dict[str, Any]:
    tokens = {f"{name}_token": {"token": name, "id": number} for name, number in special.items()}
    return {"tokenizer": {"special_tokens": tokens}}


def labelled(rows: int, empty: int) -> dict[str, Any]:
    return {"learned_rows": rows, "rows_without_labels": empty}


def test_rows_that_all_lost_their_labels_are_broken() -> None:
    nothing: dict[str, Any] = {"trajectory": {"losses": [math.nan] * 2}}
    found = judged("rows_have_labels", looked([labelled(4, 4)] * 2, trajectory={"losses": [0.0]}))
    assert (found.status, found.value) == ("broken", 8)
    assert judged("rows_have_labels", looked([labelled(4, 4)], **nothing)).status == "broken"
    elsewhere = looked([labelled(4, 4)], trajectory={"losses": [1.5]})
    assert "reads something else" in judged("rows_have_labels", elsewhere).words


def test_some_rows_without_labels_are_a_note_unless_words_are_masked_by_chance() -> None:
    some = [labelled(4, 0), labelled(4, 1)]
    found = judged("rows_have_labels", looked(some))
    assert (found.status, found.place) == ("note", "micro-batch 2")
    assert judged("rows_have_labels", looked([labelled(4, 0)])).status == "holds"
    masked = looked(some, data=with_tokens(mask=9))
    assert judged("rows_have_labels", masked).status == "not asked"
    assert judged("rows_have_labels", looked(some, "grpo")).status == "not asked"


def texts(**said: Any) -> dict[str, Any]:
    return {"facts": {"texts": said}}


def begun(most: int, pad: int = 3, width: int = 9) -> dict[str, Any]:
    shapes = {"input_ids": [4, width]}
    return {
        "bos_tokens": 4 * most,
        "bos_most_in_a_sequence": most,
        "sequences": 4,
        "pad_tokens": pad,
        "shapes": shapes,
    }


BOTH_SET = texts(sets_bos=True, template_sets_bos=True)
BOS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (begun(0), BOTH_SET, "broken"),
    (begun(1), BOTH_SET, "holds"),
    (begun(0), texts(sets_bos=False, template_sets_bos=True), "not asked"),
    (begun(0), texts(sets_bos=True, template_sets_bos=False), "not asked"),
    (begun(0), texts(sets_bos=True), "note"),
    (begun(0, pad=0), BOTH_SET, "note"),
    (begun(0), {}, "not asked"),
]


@pytest.mark.parametrize(("micro", "facts", "status"), BOS)
def test_rows_without_the_bos_that_tokenizer_and_template_set_are_broken(
    micro: dict[str, Any], facts: dict[str, Any], status: str
) -> None:
    assert judged("bos_as_tokenized", looked([micro] * STEPS, **facts)).status == status


@pytest.mark.parametrize(
    ("trainer", "twice", "status"),
    [(TORCH_LOOP, 0, "note"), (TORCH_LOOP, 4, "broken"), ("trl.SFTTrainer", 0, "broken")],
)
def test_a_bos_inside_the_rows_of_a_loop_may_be_sampled(
    trainer: str, twice: int, status: str
) -> None:
    whole = looked([begun(2) | {"rows_with_two_bos": twice}] * STEPS, data=with_tokens(bos=1))
    whole = altered(whole, "config", "trainer", to=trainer)
    assert judged("at_most_one_bos", whole).status == status
    assert judged("at_most_one_bos", looked([begun(1)], data=with_tokens(bos=1))).status == "holds"


def test_a_bos_that_a_policy_sampled_does_not_begin_its_prompts() -> None:
    sampled = begun(0, pad=0) | {"bos_tokens": 3}
    assert judged("bos_as_tokenized", looked([sampled], "grpo", **BOTH_SET)).status == "broken"


def test_labels_may_end_with_another_stop_than_eos() -> None:
    micro = {"label_tokens": 9, "eos_labels": 0, "stop_labels": 4}
    found = judged("labels_contain_eos", looked([micro], data=with_tokens(eos=2)))
    assert (found.status, found.value) == ("holds", 4)
    without = looked([micro | {"stop_labels": 0}], data=with_tokens(eos=2))
    assert judged("labels_contain_eos", without).status == "broken"


def grouped(*micro: str, size: int = 2, steps: int = 2) -> RunRecord:
    settings = {"args.num_generations": size, "args.steps_per_generation": steps}
    settings["args.generation_batch_size"] = steps * len(micro[0])
    rows = [{"rows": {"prompt_ids": list(one)}} for one in micro]
    return looked(rows, "grpo", evidence={"settings": settings})


OF_TRAINER = {"settings": {"trainer.num_generations": 2, "args.steps_per_generation": 2}}
OF_TRAINER["settings"]["args.generation_batch_size"] = 4
"""As trl keeps what a script did not set."""


def test_a_group_with_two_prompts_is_broken() -> None:
    found = judged("group_prompts", grouped("aa", "bb", "cd", "cc"))
    assert (found.status, found.place) == ("broken", "generation 2")
    assert "2 of 4 prompts" in found.words


def test_shuffled_rows_and_a_prompt_of_two_groups_are_whole_groups() -> None:
    assert judged("group_prompts", grouped("ab", "ba", "cc", "cc")).status == "holds"
    assert judged("group_prompts", grouped("ab", "ba", "cd")).status == "holds"
    assert judged("group_prompts", grouped("ab", "cd", size=1)).inapplicable
    own_name = altered(grouped("aa", "bb"), "exact", "evidence", to=OF_TRAINER)
    assert judged("group_prompts", own_name).status == "holds"
    assert judged("group_prompts", grouped("ab", "a")).status == "not asked"
    own = altered(grouped("ab", "cd"), "exact", "facts", to={"own_advantages": "_prepare_inputs"})
    assert judged("group_prompts", own).status == "note"
    assert judged("group_prompts", looked()).inapplicable


def rewarded(**functions: tuple[list[float], list[float]]) -> RunRecord:
    found: dict[str, list[float]] = {}
    for name, (means, stds) in functions.items():
        found |= {f"rewards/{name}/mean": means, f"rewards/{name}/std": stds}
    return looked(kind="grpo", trajectory={"rl": found})


FLAT = ([0.0] * STEPS, [0.0] * STEPS)
VARIED = ([0.1, 0.2, 0.1, 0.4], [0.1] * STEPS)


def test_one_of_several_reward_functions_that_never_varies_is_a_note() -> None:
    found = judged("each_reward_varies", rewarded(form=FLAT, length=VARIED))
    assert (found.status, found.place) == ("note", "form")
    assert found.words == "form gives 0 to all completions of 4 steps, and others vary"


def test_rewards_that_vary_between_steps_or_were_seen_twice_are_no_finding() -> None:
    between = ([0.0, 0.0, 1.0, 0.0], [0.0] * STEPS)
    assert judged("each_reward_varies", rewarded(form=between, length=VARIED)).status == "holds"
    short = rewarded(form=([0.0] * 2, [0.0] * 2), length=(VARIED[0][:2], VARIED[1][:2]))
    assert judged("each_reward_varies", short).status == "not asked"
    assert judged("each_reward_varies", rewarded(form=FLAT)).inapplicable


@pytest.mark.parametrize(
    ("hashes", "length", "status"),
    [("aaa", 8, "note"), ("aab", 8, "holds"), ("aa", 8, "not asked"), ("aaa", 1, "not asked")],
)
def test_a_loop_that_sees_only_the_first_batch(hashes: str, length: int, status: str) -> None:
    facts = {"updates": {"loader_length": length}}
    whole = looked([{"sha256": one} for one in hashes], facts=facts)
    assert judged("batches_differ", whole).status == status


@pytest.mark.parametrize(("prompts", "status"), [("ppp", "note"), ("ppq", "holds")])
def test_prompts_that_are_all_alike_are_a_note(prompts: str, status: str) -> None:
    """Their completions differ, and so do the batches."""
    micro = [
        {"sha256": str(place), "rows": {"prompt_ids": [one] * 4, "completion_ids": [place] * 4}}
        for place, one in enumerate(prompts)
    ]
    whole = looked(micro, "grpo", facts={"updates": {"loader_length": 8}})
    found = judged("batches_differ", whole)
    assert found.status == status
    assert ("12 rows are all the same" in found.words) == (status == "note")


def loaded(**said: Any) -> RunRecord:
    one = {"workers": 2, "seen": 2, "stream": False, "draw_the_same": []} | said
    return looked(facts={"loaders": [one]})


def test_workers_that_draw_the_same_numbers_are_broken() -> None:
    same = loaded(draw_the_same=["dataset.rng"])
    found = judged("worker_draws", same)
    assert (found.status, found.place) == ("broken", "dataset.rng")
    assert judged("worker_draws", loaded()).status == "holds"
    assert judged("worker_draws", loaded(seen=1)).status == "not asked"
    assert judged("worker_draws", looked()).status == "not asked"


def test_workers_of_a_stream_may_draw_the_same_order_to_split_it() -> None:
    split = loaded(stream=True, draw_the_same=["dataset.rng"], same_rows=False)
    assert judged("worker_draws", split).status == "not asked"
    assert judged("stream_split", split).status == "holds"
    assert judged("stream_split", loaded(stream=True)).status == "not asked"
    found = judged("stream_split", loaded(stream=True, same_rows=True))
    assert (found.status, found.value) == ("broken", 2)
