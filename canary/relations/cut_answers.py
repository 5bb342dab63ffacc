"""Answers that end before their EOS, as their row was cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from canary.relations.conversations import Asked
from canary.relations.matching import special_ids
from canary.relations.relation import Look, Outcome, Relation, broken

LEAST_CUT = 4
"""Fewer may be cut by chance in one update."""
MOST = 0.5
"""Share of answers that may be cut."""


def cut_answers(look: Look, found: Sequence[Asked], relation: Relation) -> Outcome | None:
    """Return that most answers which the data shows are cut before their EOS; None if not."""
    known = [one for one in found if one.is_known and one.of("answer")]
    if not known or look.tokenizer is None or _is_packed(look):
        return None
    ends = look.eos_ids | special_ids(look.tokenizer)
    limit = getattr(getattr(look.trainer, "args", None), "max_length", None)
    cut = []
    for one in known:
        size = len(one.document.ids)
        is_full = isinstance(limit, int) and size >= limit
        if one.document.ids[-1] not in ends and (is_full or not one.whole):
            cut.append(one.document)
    if len(cut) < LEAST_CUT or len(cut) <= MOST * len(known):
        return None
    size = Counter(len(one.ids) for one in cut).most_common(1)[0][0]
    return broken(
        relation,
        f"{len(cut)} of {len(known)} answers are cut at {size} tokens, before their EOS: "
        "the model hardly learns to stop",
        f"row {cut[0].row}, token {cut[0].first + len(cut[0].ids) - 1}",
        (len(cut), len(known)),
    )


def _is_packed(look: Look) -> bool:
    """Whether rows hold several documents: a block of them ends anywhere."""
    if getattr(getattr(look.trainer, "args", None), "packing", False):
        return True
    calls = [one for one in look.calls if one.ids is not None and one.scores_tokens]
    return any(len(look.documents(one)) > one.shape[0] for one in calls)
