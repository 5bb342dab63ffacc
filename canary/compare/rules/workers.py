"""Batches: whether steps get others, what data workers draw, and how they split a stream."""

from __future__ import annotations

from itertools import chain

from canary.compare.rules.facts import micro_batches, updates_of
from canary.compare.rules.rule import Answer, answer, not_asked, only_for, rule
from canary.record.facts import LoaderFacts
from canary.record.types import RunRecord

SUBJECT = "data workers"
"""What could not be watched if nothing is known of them."""


FEWEST = 3
"""Batches that must be equal."""


@rule(
    "batches_differ",
    "steps train on different batches",
    "a loader of several batches; always a note",
    "iterate over the loader: next(iter(loader)) begins again each time; print some prompts",
)
def batches_differ(record: RunRecord) -> Answer:
    """A loop that begins its loader again in each step sees only the first batch. A generator that
    is seeded for each row makes all prompts alike."""
    length = (updates_of(record) or {}).get("loader_length", 0)
    seen = [micro.get("sha256") for micro in micro_batches(record)]
    if length < FEWEST:
        return only_for(f"loaders of at least {FEWEST} batches")
    if len(seen) < FEWEST or None in seen or any(m.get("unseen") for m in micro_batches(record)):
        return not_asked("too few batches were recorded")
    words = f"{len({*seen})} of {len(seen)} batches differ"
    if same := len({*seen}) == 1:
        words = f"all {len(seen)} batches are the same one, and the loader has {length}"
    rows = [micro.get("rows", {}).get("prompt_ids", ()) for micro in micro_batches(record)]
    if not same and all(rows) and len({*chain(*rows)}) == 1:
        same, words = True, f"the prompts of {sum(map(len, rows))} rows are all the same"
    return answer(words, broken=same, doubt="is this to see whether one batch can be learned?")


def loaders(record: RunRecord, *, stream: bool) -> list[LoaderFacts]:
    """Return the loaders of a kind with several workers that were seen."""
    found = record.exact.get("facts", {}).get("loaders", [])
    return [one for one in found if one.get("seen", 0) > 1 and one.get("stream") == stream]


def without_workers(record: RunRecord, kind: str) -> Answer:
    """Return why nothing is asked if no loader of a kind had several workers."""
    facts = record.exact.get("facts")
    if facts is None or SUBJECT in facts.get("unseen", {}):
        return not_asked("data workers were not watched")
    return only_for(kind)


@rule(
    "worker_draws",
    "each data worker draws its own random numbers",
    "a dataset with __getitem__, whose workers draw in each of their first fetches",
    "make the generator in the worker, from the seed of torch.utils.data.get_worker_info()",
    "https://docs.pytorch.org/docs/stable/notes/faq.html#my-data-loader-workers-return-identical-random-numbers",
)
def worker_draws(record: RunRecord) -> Answer:
    """Workers are copies of one process, with copies of the dataset's generators. Torch gives new
    seeds only to its own generator and to those of `random` and `numpy.random`."""
    found = loaders(record, stream=False)
    if not found:
        return without_workers(record, "several data workers")
    same = sorted({name for one in found for name in one.get("draw_the_same", [])})
    workers = max(one.get("workers", 0) for one in found)
    words = f"no two of {workers} workers draw the same random numbers"
    if same:
        words = f"of {workers} workers, several draw the same random numbers from {same[0]}"
    return answer(words, broken=bool(same), items=same, place=same[0] if same else "")


@rule(
    "stream_split",
    "together, the workers give each row of a stream once",
    "an IterableDataset with several workers, whose first two batches differ",
    "let __iter__ skip the rows of other workers, by torch.utils.data.get_worker_info()",
    "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
)
def stream_split(record: RunRecord) -> Answer:
    """Each worker has a copy of the whole stream, and must choose its part of it."""
    found = [one for one in loaders(record, stream=True) if "same_rows" in one]
    if not found:
        return without_workers(record, "streams of several data workers")
    same = [one for one in found if one["same_rows"]]
    workers = max(one.get("workers", 0) for one in same or found)
    words = f"{workers} workers give different rows of a stream"
    if same:
        words = (
            f"all {workers} workers give the same rows of a stream, so each comes {workers} times"
        )
    return answer(words, broken=bool(same), size=workers, value=workers)
