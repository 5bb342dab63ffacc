"""Parameters of several ranks."""

from __future__ import annotations

from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """Ranks that each hold the whole model start and end with equal parameters."""
    ranks = record.exact.get("ranks")
    if not ranks:
        return only_for("several ranks")
    if ranks.get("sharded"):
        return not_asked("each rank holds only a part of the parameters")
    for moment, hashes in (
        ("final", ranks.get("final_parameters_sha256", {})),
        ("initial", ranks.get("initial_parameters_sha256", {})),
    ):
        others = [rank for rank, found in hashes.items() if found != next(iter(hashes.values()))]
        if others:
            words = f"{moment} parameters of rank {', '.join(others)} differ from rank 0"
            return answer(True, words, size=len(others))
    return answer(False, "all ranks hold the same parameters")


RULE = Rule(
    "ranks_agree",
    "all ranks hold the same parameters",
    "each rank holds the whole model",
    "wrap the model for several ranks before the first forward pass, and let nothing outside of it "
    "change weights",
    "",
    judge,
)
