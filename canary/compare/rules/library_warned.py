"""What libraries say of their own misuse."""

from __future__ import annotations

from dataclasses import dataclass

from canary.compare.rules.facts import warned
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.types import RunRecord


@dataclass(frozen=True)
class Known:
    """A warning that is a finding by itself."""

    begins: str
    words: str
    doubt: str = ""
    """Why it may be right; empty if it never is."""


KNOWN = (
    Known(
        "Found missing adapter keys while loading the checkpoint",
        "peft found no weights in the checkpoint for some adapters, and they start anew",
    ),
    Known(
        "optimizer contains a parameter group with duplicate parameters",
        "a parameter is twice in a group of the optimizer, and each step updates it twice",
    ),
    Known(
        "Detected call of `lr_scheduler.step()` before `optimizer.step()`",
        "the schedule steps before the optimizer: its first learning rate is skipped",
        "does a gradient scaler skip the first step?",
    ),
    Known(
        "reduction: 'mean' divides the total loss by both the batch size and the support size",
        "kl_div divides by the number of classes too: batchmean is the KL",
        "or is the size of this loss tuned?",
    ),
    Known(
        "dropout option adds dropout after all but last recurrent layer",
        "the dropout of a recurrent network with one layer does nothing",
        "is it meant for more layers?",
    ),
    Known(
        "Already found a `peft_config` attribute in the model",
        "adapters were added to a model that has some already",
        "are several adapters wanted?",
    ),
)
"""Each row: how the warning begins, and what it means."""


def judge(record: RunRecord) -> Answer:
    """No library warns of a misuse that this table knows."""
    facts = record.exact.get("facts")
    if facts is None or "warnings of libraries" in facts.get("unseen", {}):
        return not_asked("warnings were not watched")
    found = [one for one in KNOWN if warned(record, one.begins)]
    if not found:
        return answer(False, "no library warned of a known misuse")
    first = min(found, key=lambda one: bool(one.doubt))
    return answer(
        True,
        first.words,
        size=len(found),
        items=[one.begins for one in found],
        doubt=first.doubt,
    )


RULE = Rule(
    "library_warned",
    "no library warns that it is misused",
    "warnings of Python, during the look",
    "read the warning in the log",
    "",
    judge,
)
