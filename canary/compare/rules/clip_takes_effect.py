"""What clipping acts on."""

from __future__ import annotations

from canary.compare.rules.facts import counted
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

SUBJECT = "updates of the optimizer"
"""What could not be watched if no clip is known."""
FEWEST = 2
"""Clips that must show the same."""


def judge(record: RunRecord) -> Answer:
    """A clip acts on the gradients that the update uses: there are some, and no scaler's factor is
    in them."""
    facts = record.exact.get("facts")
    if facts is None:
        return not_asked("clipping was not watched")
    seen = facts.get("clips")
    if not seen and SUBJECT in facts.get("unseen", {}):
        return not_asked("clipping was not watched")
    if not seen or seen["clips"] < FEWEST:
        return only_for("trainings that clip gradients")
    if seen["empty"] == seen["clips"]:
        words = f"{seen['clips']} clips got no tensor with a gradient: nothing is clipped"
        return answer(True, words, size=seen["empty"])
    if seen["scaled"] >= FEWEST:
        words = (
            f"{seen['scaled']} of {seen['clips']} clips came before the scaler divided the "
            "gradients: they are clipped to almost nothing"
        )
        return answer(True, words, size=seen["scaled"])
    return answer(False, f"{counted(seen['clips'], 'clip')} acted on gradients")


RULE = Rule(
    "clip_takes_effect",
    "clipping acts on the gradients of the update",
    f"at least {FEWEST} clips with a limit",
    "give clip_grad_norm_ a list of the parameters, since a generator can be read once; call "
    "scaler.unscale_(optimizer) before it",
    "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
    judge,
)
