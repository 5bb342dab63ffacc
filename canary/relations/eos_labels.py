"""The end of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from canary.relations.conversations import Asked, asked
from canary.relations.cut_answers import cut_answers
from canary.relations.documents import Document
from canary.relations.matching import special_ids
from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds

RELATION = Relation(
    "eos_labels",
    "what is trained",
    "the labels hold the EOS of every answer that was not cut, and most are not",
    "EOS is masked like padding, missing or cut off: the model does not learn to stop",
    "https://github.com/huggingface/trl/issues/1623",
    invariants=("labels_contain_eos",),
)


@dataclass(frozen=True)
class End:
    """The end of an answer that is trained on."""

    document: Document
    place: int | None
    """The token that ends it, within the document; None without one."""

    @property
    def is_trained(self) -> bool | None:
        """Whether the model learns to stop here; None if that is not known."""
        return False if self.place is None else self.document.trained[self.place]

    @property
    def words(self) -> str:
        """Where it is."""
        place = len(self.document.ids) - 1 if self.place is None else self.place
        return f"row {self.document.row}, token {self.document.first + place}"


def ask(look: Look) -> Outcome:
    """Look at the token after each trained answer."""
    if look.call.is_encoder_decoder:
        return _of_decoder(look)
    first = next(iter(look.examples), {})
    if "prompt" in first and not {"completion", "chosen", "messages"} & set(first):
        raise CannotAsk("completions may be cut before EOS")
    found = asked(look)
    ends = [end for one in found for end in _ends(look, one)]
    known = [one for one in ends if one.is_trained is not None]
    lost = [one for one in known if not one.is_trained]
    masked = [one for one in lost if one.place is not None]
    cut = None if masked else cut_answers(look, found, RELATION)
    if cut is not None:
        return cut
    if not known or (not masked and len(lost) == len(known)):
        # Without EOS in any answer, the record says whether one is known at all.
        raise CannotAsk("no answer is known to end with EOS")
    if not lost:
        return holds(RELATION, f"all {len(known)} answers have their EOS among the labels")
    worst = (masked or lost)[0]
    what = "masks its EOS" if masked else "has no EOS"
    return broken(
        RELATION,
        f"{len(lost)} of {len(known)} answers lack EOS in their labels; the first {what}",
        worst.words,
        (len(lost), len(known)),
    )


def _of_decoder(look: Look) -> Outcome:
    """Look at the last label of each row, which a decoder of its own writes."""
    labels = look.call.arguments.get("labels")
    if labels is None or labels.dim() != 2 or not look.eos_ids:
        raise CannotAsk("the labels of the decoder are not known")
    rows = [[one for one in row if one >= 0 and one != look.pad_id] for row in labels.tolist()]
    rows = [row for row in rows if row]
    # A row that fills the width may be cut.
    whole = [row for row in rows if len(row) < labels.shape[1]]
    lost = [row for row in whole if row[-1] not in look.eos_ids]
    if not whole or look.pad_id in look.eos_ids:
        raise CannotAsk("no answer is known to end with EOS")
    if not lost:
        return holds(RELATION, f"all {len(whole)} answers have their EOS among the labels")
    words = f"{len(lost)} of {len(whole)} answers lack EOS in their labels"
    return broken(RELATION, words, f"row {rows.index(lost[0])}", (len(lost), len(whole)))


def _ends(look: Look, one: Asked) -> Iterator[End]:
    """Yield the ends of the trained answers of a document."""
    document = one.document
    answers = one.of("answer")
    if not answers:
        place = len(document.ids) - 1
        ends = place > 0 and document.ids[place] in look.eos_ids and document.is_end_known
        if ends and document.trained[place - 1]:
            yield End(document, place)
        return
    stops = look.eos_ids
    if look.tokenizer is not None:
        stops = stops | special_ids(look.tokenizer)
    for turn in answers:
        if not document.trained[turn.end - 1]:
            continue
        later = (other.first for other in one.turns if other.first >= turn.end)
        following = range(turn.end, min(later, default=len(document.ids)))
        place = next((at for at in following if document.ids[at] in stops), -1)
        if place >= 0:
            yield End(document, place)
        elif turn is answers[-1] and one.whole and not _may_be_cut(look, document):
            yield End(document, None)


def _may_be_cut(look: Look, document: Document) -> bool:
    """Whether a document fills its row, or all that the trainer allows."""
    limit = getattr(getattr(look.trainer, "args", None), "max_length", None)
    size = len(document.ids)
    return size >= limit if isinstance(limit, int) else document.is_widest
