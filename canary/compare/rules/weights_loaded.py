"""Checkpoints that load nothing."""

from __future__ import annotations

from canary.compare.rules.rule import Answer, Rule, answer, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A checkpoint that is loaded with `strict=False` has names that the model knows."""
    failed = record.exact.get("facts", {}).get("loads", [])
    if not failed:
        return only_for("commands whose load_state_dict found no name")
    one = failed[0]
    return answer(
        True,
        f"none of the {one['given']} tensors of a checkpoint was loaded into {one['model']}: it "
        f"names {one['name']}, and the model {one['wanted']}",
        size=one["given"],
        place=one["wanted"],
    )


RULE = Rule(
    "weights_loaded",
    "a checkpoint that is loaded reaches the model",
    "a command that calls load_state_dict with strict=False",
    "rename the keys, and look at what load_state_dict returns",
    "https://github.com/pytorch/examples/issues/1029",
    judge,
)
