"""A stream that workers split."""

from __future__ import annotations

from canary.compare.rules.rule import Answer, Rule, answer
from canary.compare.rules.worker_draws import loaders, without_workers
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """Each worker has a copy of the whole stream, and must choose its part of it."""
    found = [one for one in loaders(record, stream=True) if "same_rows" in one]
    if not found:
        return without_workers(record, "streams of several data workers")
    same = [one for one in found if one["same_rows"]]
    workers = max(one.get("workers", 0) for one in same or found)
    words = f"{workers} workers give other rows of a stream"
    if same:
        words = (
            f"all {workers} workers give the same rows of a stream, so each comes {workers} times"
        )
    return answer(bool(same), words, size=workers, value=workers)


RULE = Rule(
    "stream_split",
    "workers give each row of a stream once",
    "an IterableDataset with several workers, whose first two batches differ",
    "let __iter__ skip the rows of other workers, by torch.utils.data.get_worker_info()",
    "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
    judge,
)
